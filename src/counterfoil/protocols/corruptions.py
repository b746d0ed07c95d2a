"""Mean corruption error on ImageNet-C (Hendrycks and Dietterich, 2019): a model's error per corruption over that of AlexNet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from counterfoil.metrics.estimate import Floats, Resamples, Share, Statistic, Sums, estimate_one
from counterfoil.metrics.observations import Observations
from counterfoil.metrics.tables import Column, Table, estimate_in

ALEXNET = {
    "gaussian_noise": 88.6428, "shot_noise": 89.4468, "impulse_noise": 92.2640, "defocus_blur": 81.9880, "glass_blur": 82.6268,
    "motion_blur": 78.5948, "zoom_blur": 79.8360, "snow": 86.6816, "frost": 82.6572, "fog": 81.9324, "brightness": 56.4592,
    "contrast": 85.3204, "elastic_transform": 64.6056, "pixelate": 71.7840, "jpeg_compression": 60.6500,
}  # fmt: skip
"""AlexNet's error by corruption, in per cent, over all severities, as published with the data set."""


@dataclass(frozen=True)
class CorruptionError(Statistic):
    """The mean over corruptions of a model's error as a percentage of AlexNet's; severities count alike."""

    parts: tuple[Share, ...] = ()
    errors: tuple[float, ...] = ()
    """AlexNet's, for each of the parts."""

    def of(self, sums: Sums) -> Floats:
        ratios = [100 * (100 - share.of(sums)) / error for share, error in zip(self.parts, self.errors, strict=True)]
        found: Floats = np.mean(ratios, axis=0)
        return found

    def count(self, sums: Sums) -> int:
        return sum(each.count(sums) for each in self.parts)

    def with_prefix(self, prefix: str) -> Self:
        return replace(self, parts=tuple(each.with_prefix(prefix) for each in self.parts))


def corruption_errors(seen: Observations) -> dict[str, Any]:
    """Estimate mCE and the corruption errors it is the mean of; nothing unless every row is of a corruption of ImageNet-C."""
    done = seen.groups["factor"].tolist()
    kinds = {each: str(each).rpartition(" ")[0] for each in sorted(set(done))}
    if not kinds or not set(kinds.values()) <= set(ALEXNET):
        return {}
    rows = np.array(done, dtype=object)
    columns = {f"{each} {name}": seen.columns[name] * (rows == each) for each in kinds for name in ("right", "counted")}
    drawn = Resamples(columns, clusters=seen.cluster, seed=seen.seed)

    def error(*corruptions: str) -> dict[str, Any]:
        chosen = [each for each, kind in kinds.items() if kind in corruptions]
        # A mean over severities, then over corruptions: severities weigh alike where some are not there.
        shares = tuple(Share(f"{each} right", f"{each} counted", "no image that counts") for each in chosen)
        return estimate_one(drawn, CorruptionError(shares, tuple(ALEXNET[kinds[each]] for each in chosen))).to_dict()

    held = sorted(set(kinds.values()))
    return {"mCE": error(*held), "corruption_errors": {each: error(each) for each in held}}


def corruption_table(found: Mapping[str, Any]) -> list[Table]:
    """Put corruption errors into a table, where there are some."""
    errors = found.get("corruption_errors", {})
    rows = [["mean (mCE)", estimate_in(found, "mCE")], *([name, estimate_in(errors, name)] for name in errors)]
    left_out = len(ALEXNET) - len(errors)
    notes = [f"{left_out} of the {len(ALEXNET)} corruptions are not there: no published mCE"] if left_out else []
    title = "Corruption error: the model's error as a percentage of AlexNet's"
    return [Table([Column("corruption", "text"), Column("error", unit=" %")], rows, title=title, notes=notes)] if errors else []
