"""Try oracles on the photos: whether they know the classes, what they confuse, and what they accept that they should not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import CounterfoilError
from counterfoil.core.records import Estimate
from counterfoil.core.spec import PartSpec
from counterfoil.doctor.sample import FewImages, Finding, SetUp, judge, percent, share
from counterfoil.metrics.tables import amount
from counterfoil.parts import calls, registry
from counterfoil.parts.contracts import Oracle, to_device
from counterfoil.protocols.provenance import check_independent

KNOWS = 80.0  # per cent of the photos that an oracle has to be right on
PEOPLE = "have people judge: 'run --oracle human:', then 'review'"


@dataclass(frozen=True)
class OracleTrial:
    """An oracle tried on photos whose class is known."""

    part: PartSpec
    oracle: Oracle
    images: int
    right: Estimate  # of the photos on which it does not abstain
    false_accepts: Estimate  # accepted under the wrong class that it finds most likely
    nonsense: Estimate  # accepted as their class with their pixels scrambled
    confused: str  # the pair of classes that it mistakes most often

    @property
    def share(self) -> float:
        """Per cent of all photos that it gives their class; where it abstains it does not."""
        return (self.right.value or 0.0) * self.right.n / self.images

    @property
    def knows(self) -> bool:
        """Tell whether it knows the classes well enough to judge by, and answers often enough."""
        return (self.right.value or 0.0) >= KNOWS and 2 * self.right.n >= self.images

    def rows(self) -> dict[str, str]:
        """Measured values under names for people."""
        found = {"oracle agrees with the labels": percent(self.right)}
        found |= {"oracle abstains": f"on {self.images - self.right.n} of {self.images}"} if self.right.n < self.images else {}
        found |= {"accepts under a wrong class": percent(self.false_accepts), "accepts when scrambled": percent(self.nonsense)}
        return found | ({"oracle confuses": self.confused} if self.confused else {})

    def __str__(self) -> str:
        if self.right.value is None:
            return f"silent about all {self.images} photos"
        told = f"right on {self.right.value:.0f} % of {self.right.n} photos"
        told += f" (it abstains on {self.images - self.right.n} more)" if self.right.n < self.images else ""
        told += f", accepts {self.false_accepts.value:.1f} % under a wrong class and {self.nonsense.value:.1f} % when scrambled"
        return f"{told}; most often {self.confused}" if self.confused else told


def try_oracle(part: PartSpec, oracle: Oracle, setup: SetUp, few: FewImages) -> OracleTrial:
    """Ask an oracle that is bound to the classes about the photos, about wrong classes, and about scrambled photos."""
    oracle = _fit(oracle, setup)
    names, count = setup.dataset.classes, len(setup.dataset.classes)
    keeps, seen = judge(oracle, few.images, few.labels, few.ids, count)
    wrong = torch.where((seen >= 0) & (seen != few.labels), seen, (few.labels + 1) % count)
    accepts, _ = judge(oracle, few.images, wrong, few.ids, count)
    scrambled, _ = judge(oracle, _scramble(few.images), few.labels, few.ids, count)
    pairs = Counter(
        (names[was], names[now]) for was, now in zip(few.labels.tolist(), seen.tolist(), strict=True) if -1 < now != was
    )
    confused = "".join(f"{was} taken for {now} ({amount(times, 'time')})" for (was, now), times in pairs.most_common(1))
    right = share(keeps[keeps >= 0] == 1)
    return OracleTrial(part, oracle, len(few), right, share(accepts == 1), share(scrambled == 1), confused)


def try_all(parts: Iterable[PartSpec], setup: SetUp, few: FewImages, tell: Any) -> list[OracleTrial]:
    """Try several oracles by name; those that cannot be used are named to `tell`."""
    found = []
    for part in parts:
        try:
            oracle = to_device(registry.create("oracle", part.name, part.options), setup.spec.device)
            check_independent(setup.model, oracle)
            found.append(try_oracle(part, calls.bind(oracle, setup.dataset.classes), setup, few))
        except CounterfoilError as problem:
            tell(f"oracle {part.name} is not used: {problem}")
    return found


def best_of(trials: Sequence[OracleTrial]) -> OracleTrial | None:
    """The oracle that knows the classes best, or None where none knows them."""
    able = [each for each in trials if each.knows]
    return max(able, key=lambda each: (each.share, -(each.false_accepts.value or 0.0)), default=None)


def find_better(tried: OracleTrial, setup: SetUp, few: FewImages) -> list[Finding]:
    """A finding where an oracle does not know the classes, with what to take in its place: a probe of its encoder, or people."""
    if tried.knows or tried.right.value is None:
        return []
    failed: list[str] = []
    known = entry_points(group="counterfoil.encoders", name=tried.part.name.partition(":")[0])
    others = [PartSpec(name=f"probe:{tried.part.name}")] if known else []
    trials = try_all(others, setup, few, failed.append)
    best = best_of(trials)
    evidence = "; ".join([f"{each.part.name} is {each}" for each in (tried, *trials)] + failed)
    remedy = f"take --oracle {best.part.name}, which learns them from your photos" if best else PEOPLE
    says = "the oracle does not know these classes well enough to judge by"
    return [Finding("oracle", says, evidence, remedy, severity="mistake" if (tried.right.high or 0) < 50 else "caution")]


def _fit(oracle: Any, setup: SetUp) -> Oracle:
    """The oracle, fitted on the photos if it is one that is."""
    if getattr(oracle, "cross_fitted", False) and not oracle.fitted:
        oracle = oracle.fit(setup.dataset, size=setup.size, device=setup.spec.device)
    return oracle  # type: ignore[no-any-return]


def _scramble(images: Tensor) -> Tensor:
    """The same pixels in another order, which show nothing."""
    order = torch.randperm(images.shape[-1] * images.shape[-2], generator=torch.Generator().manual_seed(0)).to(images.device)
    return images.flatten(2)[:, :, order].reshape(images.shape)
