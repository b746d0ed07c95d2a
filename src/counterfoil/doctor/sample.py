"""The handful of pictures that everything is tried on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from counterfoil.core.errors import BadData, BadImage, RunFailed
from counterfoil.core.records import Estimate
from counterfoil.engine.scheduler import CPU_BATCH
from counterfoil.metrics.estimate import Share, estimate
from counterfoil.parts import calls
from counterfoil.parts.contracts import Oracle
from counterfoil.protocols.assembly import Assembly, image_seed


@dataclass(frozen=True)
class Handful:
    """Some of the data's pictures."""

    images: Tensor  # (N, 3, H, W)
    labels: Tensor  # (N,) int64, in the data's classes
    truth: Tensor  # (N,) int64, in the model's outputs
    seeds: Tensor  # (N,) int64
    unreadable: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.images)

    def rows(self, which: Tensor | slice) -> Handful:
        """Some of them."""
        return Handful(self.images[which], self.labels[which], self.truth[which], self.seeds[which], self.unreadable)


def handful(assembly: Assembly, count: int) -> Handful:
    """Up to `count` pictures, taken evenly over the data."""
    images, labels, seeds, bad = [], [], [], []
    data = assembly.dataset.limited(count=count)
    for sample in data:
        try:
            images.append((data.load(sample, assembly.size) * 255).round() / 255)
        except BadImage as problem:
            bad.append(str(problem))
            continue
        labels.append(sample.label)
        seeds.append(image_seed(assembly.spec.seed, sample.image_id))
    if not images:
        raise BadData(f"{assembly.spec.data.name}: none of {len(bad)} pictures tried can be read; the first: {bad[0]}")
    device = assembly.spec.device
    chosen = torch.tensor(labels, device=device)
    truth = torch.tensor(assembly.columns, device=device)[chosen]
    return Handful(torch.stack(images).to(device), chosen, truth, torch.tensor(seeds, device=device), tuple(bad))


def in_tiles(answer: Callable[[Tensor], Tensor], images: Tensor) -> Tensor:
    """The answers for many pictures, asked for a few at a time, without gradients."""
    rows = CPU_BATCH if images.device.type == "cpu" else 64
    with torch.no_grad():
        return torch.cat([answer(part).float() for part in images.split(rows)])


def verdicts(oracle: Oracle, images: Tensor, labels: Tensor) -> Tensor:
    """What the oracle says of many pictures, asked for a few at a time: 1 kept, 0 rejected, -1 abstains.  # → (N,)"""
    rows = CPU_BATCH if images.device.type == "cpu" else 64
    with torch.no_grad():
        parts = zip(images.split(rows), labels.split(rows), strict=True)
        said = torch.cat([calls.verdicts_of(oracle.judge, some, truth) for some, truth in parts])  # (N, 3)
    if not said.isfinite().all():
        raise RunFailed(calls.NOT_FINITE)
    return said[:, 0].to(torch.int8)


def share(right: Tensor) -> Estimate:
    """The per cent of pictures for which something holds, with its interval."""
    columns = {"right": right.cpu().numpy().astype(np.int64), "all": np.ones(len(right), np.int64)}
    return estimate(columns, {"share": Share("right", "all")})["share"]


def percent(found: Estimate) -> str:
    """An estimate as people read it."""
    if found.value is None:
        return f"– ({found.note})"
    return f"{found.value:.1f} % ({found.low:.1f} to {found.high:.1f}, n = {found.n})"
