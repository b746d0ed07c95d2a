"""Finds the latent cells that carry the class: a regression of labels on latents that keeps cells or leaves them out whole.

A decoder works cell by cell, so what is saved depends on which cells move, not on how many of a cell's channels do. The weights
of a cell are therefore one group. The penalty is the strongest that loses no accuracy in cross-validation (within one standard
error). Cells with weights may lie anywhere, and what has to be decoded is a rectangle; so the rectangle of the wanted size with
most of the weight is taken, and the cells outside it are left out. The score is that of the cells that are kept, fitted again.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import numpy as np
import torch
from torch import Tensor

from counterfoil.core.errors import BadData, BadSpec
from counterfoil.core.records import Estimate
from counterfoil.metrics.estimate import Share, estimate
from counterfoil.parts.generators.sparse.box import Box, richest
from counterfoil.parts.generators.sparse.mask import Mask
from counterfoil.studies.sparse_fit import group_lasso
from counterfoil.studies.sparse_fit.fit import TEST_SHARE, Fitted
from counterfoil.studies.sparse_fit.group_lasso import Weights

LEAST = 40  # latents
PATH = (0.5, 0.28, 0.16, 0.09, 0.05, 0.028, 0.016, 0.009)  # penalties to try, in parts of the least that keeps nothing


@dataclass(frozen=True)
class CellSettings:
    """How the cells are chosen."""

    window: float = 65.0  # per cent of the picture that may be decoded again
    halo: int = 0  # cells around the kept ones that are decoded with them
    folds: int = 3
    iterations: int = 60
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.window <= 100:
            raise BadSpec(f"window={self.window}: the per cent of the picture that may be decoded again, above 0 and at most 100")
        if self.halo < 0:
            raise BadSpec(f"halo={self.halo}: cells around the kept ones that are decoded with them, 0 or more")


@dataclass(frozen=True)
class _Rows:
    """Latents cell by cell, with their classes."""

    features: Tensor  # (n, H·W, C)
    labels: Tensor  # (n,)
    classes: int

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, which: Tensor) -> _Rows:
        return _Rows(self.features[which], self.labels[which], self.classes)

    def cells(self, kept: Tensor) -> _Rows:
        return _Rows(self.features[:, kept], self.labels, self.classes)


def fit_cells(latents: Tensor, labels: Tensor, settings: CellSettings) -> Fitted:
    """The mask of the cells that tell classes apart.  # (n, C, H, W), (n,)"""
    if latents.dim() != 4:
        raise BadData(
            f"sparse: a latent of shape {tuple(latents.shape[1:])} has no rows and columns of cells; use question=perturbed"
        )
    known, labels = labels.unique(return_inverse=True)
    if len(latents) < LEAST or len(known) < 2:
        raise BadData(f"sparse: needs {LEAST} or more pictures of two or more classes, got {len(latents)} of {len(known)}")
    shape = latents.shape[1:]
    order = torch.randperm(len(latents), generator=torch.Generator().manual_seed(settings.seed))
    tested, learned = order.split([round(TEST_SHARE * len(order)), len(order) - round(TEST_SHARE * len(order))])
    features = latents.float().flatten(2).transpose(1, 2)  # (n, H·W, C)
    features = (features - features[learned].mean(0)) / features[learned].std(0).clamp_min(1e-6)
    rows = _Rows(features, labels, len(known))
    share = _cross_validated(rows.take(learned), settings)
    everywhere = _path(rows.take(learned), settings, down_to=share)[-1]
    box = _window(everywhere.lengths.reshape(shape[1:]), settings)
    kept = (everywhere.lengths > 0) & box.cells(grid=(shape[1], shape[2])).flatten()  # (H·W,)
    if not bool(kept.any()):
        raise BadData(
            f"sparse: no cell of {len(latents)} latents tells the classes apart; give more images, or question=perturbed"
        )
    again = _path(rows.take(learned).cells(kept), settings, down_to=share)[-1]
    score = _score(again, rows.take(tested).cells(kept))
    chance = 100 * float(labels[tested].bincount().max()) / len(tested)
    found = {
        "penalty": share,
        "pictures": len(latents),
        "test_score": score.to_dict(),
        "test_score_of_all_cells": _score(everywhere, rows.take(tested)).to_dict(),
        "chance": chance,
    }
    about = {"question": "class", **asdict(settings), **found}
    return Fitted(Mask(kept.reshape(1, *shape[1:]).expand(shape).contiguous(), about, settings.halo), score, chance)


def _path(rows: _Rows, settings: CellSettings, *, down_to: float = 0.0) -> list[Weights]:
    """Regressions under ever weaker penalties, each begun where the one before ended."""
    most = group_lasso.weakest_for_nothing(rows.features, rows.labels, rows.classes)
    found: list[Weights] = []
    for share in PATH:
        if share < down_to:
            break
        last = found[-1] if found else None
        found.append(
            group_lasso.fit(
                rows.features, rows.labels, rows.classes, penalty=share * most, start=last, iterations=settings.iterations
            )
        )
    return found


def _cross_validated(rows: _Rows, settings: CellSettings) -> float:
    """The strongest penalty whose accuracy is within one standard error of the best."""
    fold = torch.arange(len(rows)) % settings.folds  # rows come in a random order
    right = torch.zeros(len(PATH), len(rows), dtype=torch.bool)
    for number in range(settings.folds):
        out = rows.take(fold == number)
        for place, fitted in enumerate(_path(rows.take(fold != number), settings)):
            right[place, fold == number] = fitted.predict(out.features) == out.labels
    accuracy = right.float().mean(1)  # (P,)
    best = float(accuracy.max())
    enough = best - (best * (1 - best) / len(rows)) ** 0.5
    return PATH[int((accuracy >= enough).nonzero()[0])]


def _window(weights: Tensor, settings: CellSettings) -> Box:
    """The box with most of the weight whose window, halo included, is no larger than wanted.  # (H, W)"""
    grid = (weights.shape[0], weights.shape[1])
    allowed = settings.window / 100 * weights.numel()
    for area in range(weights.numel(), 0, -1):
        box = richest(weights, area=area)
        if box.grown(settings.halo, grid=grid).area <= allowed:
            return box
    raise BadSpec(f"window={settings.window}: less than one cell of {grid[0]} × {grid[1]} and its halo; use a larger one")


def _score(fitted: Weights, rows: _Rows) -> Estimate:
    """Per cent right on rows it has not seen."""
    right = (fitted.predict(rows.features) == rows.labels).numpy()
    columns = {"right": right.astype(np.int64), "all": np.ones(len(right), np.int64)}
    return estimate(columns, {"score": Share("right", "all")}, clusters=np.arange(len(right)))["score"]
