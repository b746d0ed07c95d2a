"""Cells that carry the class: found where they are, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from counterfoil.core.errors import BadData, BadSpec
from counterfoil.parts.generators.sparse.box import Box, around, richest
from counterfoil.studies.sparse_fit import group_lasso
from counterfoil.studies.sparse_fit.cells import CellSettings, fit_cells
from counterfoil.studies.sparse_fit.fit import Settings, _under


def made(count: int = 240, *, told: bool = True, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise of 3 × 8 × 8, with the class of three in cells (2, 5) and (3, 5)."""
    source = torch.Generator().manual_seed(seed)
    latents, labels = torch.randn(count, 3, 8, 8, generator=source), torch.randint(3, (count,), generator=source)
    if told:
        latents[torch.arange(count), labels, 2, 5] += 2.0
        latents[torch.arange(count), labels, 3, 5] += 2.0
    return 5 * latents + 1, labels


def test_the_cells_that_tell_are_kept_with_all_their_channels():
    fitted = fit_cells(*made(), CellSettings(window=25, halo=1))
    cells = fitted.mask.kept.any(0)
    assert bool(cells[2, 5]) and bool(cells[3, 5]) and bool((fitted.mask.kept == cells).all())
    assert around(cells).grown(1, grid=(8, 8)).area <= 16
    assert fitted.score.low > 60 > fitted.chance
    assert fitted.mask.about["test_score"]["value"] == fitted.score.value


def test_noise_scores_at_chance():
    fitted = fit_cells(*made(told=False, seed=4), CellSettings(window=50))
    assert fitted.score.low < fitted.chance + 5


def test_settings_and_data_that_cannot_do_are_named():
    with pytest.raises(BadSpec, match="window=0"):
        CellSettings(window=0)
    with pytest.raises(BadSpec, match="halo=-1"):
        CellSettings(halo=-1)
    with pytest.raises(BadSpec, match="less than one cell of 8 × 8"):
        fit_cells(*made(), CellSettings(window=1))
    with pytest.raises(BadData, match="40 or more pictures"):
        fit_cells(*made(30), CellSettings())
    with pytest.raises(BadData, match="two or more classes, got 50 of 1"):
        fit_cells(torch.randn(50, 3, 4, 4), torch.zeros(50).long(), CellSettings())
    with pytest.raises(BadData, match=r"shape \(7,\) has no rows and columns"):
        fit_cells(torch.randn(50, 7), torch.arange(50) % 2, CellSettings())
    with pytest.raises(BadData, match="no cell of 50 latents"):
        fit_cells(torch.zeros(50, 3, 4, 4), torch.arange(50) % 2, CellSettings())


def test_with_groups_of_one_and_two_classes_it_is_the_lasso_of_scikit_learn():
    source = np.random.default_rng(0)
    rows = source.normal(size=(120, 10))
    labels = (rows[:, 0] - 2 * rows[:, 3] + source.normal(size=120) > 0).astype(int)
    penalty = 0.05
    ours = group_lasso.fit(torch.from_numpy(rows)[..., None], torch.from_numpy(labels), 2, penalty=penalty, iterations=3000)
    # Two classes with opposite weights, so that a pair's length is √2 of one and the difference of the two is the binary weight.
    binary = (ours.weight[:, 0, 1] - ours.weight[:, 0, 0]).numpy()
    theirs = _under(120 * penalty / 2**0.5, rows, labels, Settings(iterations=2000))
    assert np.allclose(binary, theirs.coef_[0], atol=2e-3)
    assert ((binary == 0) == (np.abs(theirs.coef_[0]) < 1e-6)).all() and (binary == 0).any()


def test_from_the_weakest_penalty_for_nothing_on_nothing_is_kept():
    latents, labels = made()
    rows = latents.flatten(2).transpose(1, 2)
    rows = (rows - rows.mean(0)) / rows.std(0)
    least = group_lasso.weakest_for_nothing(rows, labels, 3)
    assert not group_lasso.fit(rows, labels, 3, penalty=1.01 * least).lengths.any()
    assert group_lasso.fit(rows, labels, 3, penalty=0.95 * least).lengths.any()


def test_the_richest_box_is_the_best_of_all():
    weights = torch.rand(5, 6, generator=torch.Generator().manual_seed(2))
    for area in (1, 4, 7, 12, 30):
        found = richest(weights, area=area)
        every = [
            float(weights[top:bottom, left:right].sum())
            for top in range(5)
            for bottom in range(top + 1, 6)
            for left in range(6)
            for right in range(left + 1, 7)
            if (bottom - top) * (right - left) <= area
        ]
        assert found.area <= area
        assert float(weights[found.top : found.bottom, found.left : found.right].sum()) == pytest.approx(max(every), abs=1e-6)


def test_boxes_cut_and_paste_at_every_resolution():
    box, grid = Box(1, 0, 3, 2), (4, 4)
    assert box.grown(1, grid=grid) == Box(0, 0, 4, 3) and box.area == 4
    picture = torch.arange(2 * 1 * 8 * 8.0).reshape(2, 1, 8, 8)
    assert box.cut(picture, grid=grid).shape == (2, 1, 4, 4)
    part = torch.zeros(2, 1, 4, 4, requires_grad=True)
    pasted = box.paste(part, picture, grid=grid)
    assert not bool(box.cut(pasted, grid=grid).any()) and torch.equal(pasted[..., 6:, :], picture[..., 6:, :])
    pasted.sum().backward()
    assert bool((part.grad == 1).all())
    assert around(box.cells(grid=grid)) == box
