"""How much better a model does after one thing was changed, picture by picture.

Accuracy alone is blunt: a wrong normalisation costs a good model a few points, which a handful of pictures cannot show.
The loss of the true class is sharper, but it also falls when a model merely becomes less sure of itself. So losses are
compared after each variant has been given the temperature that suits it best; what is left is whether it knows better.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
import torch
import torch.nn.functional as F
from scipy.stats import wilcoxon
from torch import Tensor

from counterfoil.metrics.tables import p_is

TEMPERATURES = torch.logspace(-2.5, 1.5, 49)


@dataclass(frozen=True)
class Evidence:
    """A model as it is against the same model with one thing changed, on the same pictures."""

    accuracy: tuple[float, float]  # before and after
    loss: tuple[float, float]  # mean, at the temperature that suits each best
    p_value: float  # that the losses fell by chance alone
    images: int
    gained: int  # images that are right after and were wrong before
    lost: int  # the other way round

    @property
    def chance_of_gain(self) -> float:
        """The probability of gaining so many images, or more, where each that changes is as likely to be lost (McNemar)."""
        changed = self.gained + self.lost
        return float(sum(comb(changed, each) for each in range(self.gained, changed + 1)) * 0.5**changed)

    @property
    def relief(self) -> float:
        """The share of the loss that the change takes away."""
        return 1 - self.loss[1] / max(self.loss[0], 1e-9)

    def __str__(self) -> str:
        before, after = self.accuracy
        return (
            f"accuracy {before:.1%} → {after:.1%}, calibrated loss {self.loss[0]:.2f} → {self.loss[1]:.2f} "
            f"on {self.images} pictures, {p_is(self.p_value)}"
        )


def calibrated(logits: Tensor, truth: Tensor) -> Tensor:
    """The loss of each picture at the temperature with the lowest mean.  # (N, K), (N,) → (N,)"""
    losses = _by_temperature(logits, truth)
    return losses[losses.mean(1).argmin()]


def compare(before: Tensor, after: Tensor, truth: Tensor, truth_after: Tensor | None = None) -> Evidence:
    """Evidence from the logits before and after; `truth_after` if the change is one of the outputs' order."""
    meant = truth if truth_after is None else truth_after
    first, second = _by_temperature(before, truth), _by_temperature(after, meant)  # (temperatures, N)
    # Compared at the temperature that suits each, and at one that suits both: where most pictures are easy, a variant that
    # is a trifle surer of those would else outvote the few that matter. Two tests, so the smaller p-value counts double.
    common = (first + second).mean(1).argmin()
    each = first[first.mean(1).argmin()] - second[second.mean(1).argmin()]
    p_value = min(1.0, 2 * min(_falls(each), _falls(first[common] - second[common])))
    best = (float(first.mean(1).min()), float(second.mean(1).min()))
    right, right_after = before.argmax(1) == truth, after.argmax(1) == meant
    accuracy = float(right.float().mean()), float(right_after.float().mean())
    gained, lost = int((right_after & ~right).sum()), int((right & ~right_after).sum())
    return Evidence(accuracy, best, p_value, len(truth), gained, lost)


def _falls(differences: Tensor) -> float:
    """The chance of such differences, or greater ones, if losses rose as easily as they fell."""
    values = differences.cpu().numpy()
    values = values[np.abs(values) > 1e-12]
    return float(wilcoxon(values, alternative="greater").pvalue) if len(values) else 1.0


def _by_temperature(logits: Tensor, truth: Tensor) -> Tensor:
    """The loss of each picture at every temperature.  # → (temperatures, N)"""
    logits = logits.double()
    losses = torch.stack([F.cross_entropy(logits * float(factor), truth, reduction="none") for factor in TEMPERATURES])
    return losses.nan_to_num(nan=1e6, posinf=1e6)
