"""A study: an experiment on the instrument itself, its settings, and what it finds: tables of estimates, and claims about them.

By default a study runs on a world whose truth is known, which an installed package describes under the entry point group
`counterfoil.worlds`; with other parts it runs on those. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.core.errors import UsageError
from counterfoil.core.records import Estimate
from counterfoil.core.spec import Data, Part, PartSpec, Strict
from counterfoil.metrics.tables import Column, Table, as_data, as_text, estimate_text

if TYPE_CHECKING:
    from counterfoil.studies.runs import Runs

Values = Mapping[str, Estimate]


@dataclass(frozen=True)
class Study:
    """One experiment; `counterfoil study NAME` runs it."""

    name: str
    published: str
    """Tables of the FMR paper that it corresponds to, or in what it goes beyond them."""
    run: Callable[[Runs], Findings]
    least_models: int = 1
    images: int = 96
    """Source images by default."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options of its own with their defaults, set by `--set KEY=VALUE`."""


class DefaultParts(Strict):
    """The parts of a study when none are given."""

    data: Data
    generator: Part
    oracle: Part


@dataclass(frozen=True)
class World:
    """Parts whose truth is known, and what is known of them."""

    name: str
    parts: DefaultParts
    other_images: Mapping[str, Any]
    """Options of its data that give other images than the tested ones, to fit or train on."""
    ordered: tuple[str, ...]
    """Models of one architecture, from the least to the most robust."""
    studies: Mapping[str, Mapping[str, Any]]
    """By study: the default models, number of images and options."""

    def has(self, part: PartSpec) -> bool:
        """Tell whether a part is one of this world."""
        return part.name.partition(":")[0] == self.name


@cache
def world() -> World | None:
    """Return the installed world, if there is one."""
    for entry in entry_points(group="counterfoil.worlds"):
        told = entry.load()()
        parts = DefaultParts.model_validate(told["parts"])
        return World(entry.name, parts, told["other_images"], tuple(told["ordered"]), told["studies"])
    return None


@dataclass(frozen=True)
class StudySettings:
    """A user's decisions about a study."""

    folder: Path
    data: PartSpec
    generator: PartSpec
    oracle: PartSpec
    models: tuple[PartSpec, ...] = ()
    size: int | None = None
    images: int | None = None
    seed: int = 0
    device: str = "cpu"
    search: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    """The study's own options, defaults included."""

    @property
    def known(self) -> bool:
        """Tell whether every part is of the installed world, so that the truth is known."""
        found = world()
        return found is not None and all(found.has(part) for part in (self.data, self.generator, self.oracle, *self.models))

    def other_images(self, count: int, *, given: str, use: str) -> PartSpec:
        """Return data with other images than the tested ones: what is `given`, or the world's."""
        if given:
            return PartSpec(name=given if ":" in given else f"folder:{given}")
        found = world()
        if found is not None and found.has(self.data):
            return PartSpec(name=self.data.name, options={**self.data.options, **found.other_images, "count": count})
        raise UsageError(f"{use}: name other images than the tested ones, as in --set {use}=folder:train")

    def complete(self, study: Study) -> StudySettings:
        """Fill in the defaults of a study and of the world."""
        found = world()
        own = found.studies.get(study.name, {}) if found else {}
        models = self.models or tuple(PartSpec(name=name) for name in own.get("models", ()))
        if len(models) < study.least_models:
            raise UsageError(f"{study.name}: takes {study.least_models} models or more, got {len(models)}; repeat --model")
        names = [model.name for model in models]
        if len(set(names)) < len(names):
            raise UsageError(f"{study.name}: {max(names, key=names.count)} is given twice; name models that differ")
        options = {**study.options, **own.get("options", {}), **self.options}
        return replace(self, models=models, images=self.images or own.get("images", study.images), options=options)


@dataclass(frozen=True)
class Claim:
    """A statement about the numbers. `holds` is None where the images are too few to tell."""

    claim: str
    holds: bool | None
    evidence: str
    required: bool = True
    """True if it must hold where the truth is known; otherwise it is only reported."""

    @property
    def word(self) -> str:
        """The answer in a word or three."""
        return {True: "holds", False: "DOES NOT HOLD", None: "cannot tell"}[self.holds]


@dataclass(frozen=True)
class Findings:
    """Everything a study found."""

    tables: tuple[Table, ...]
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield tables, notes and claims as text."""
        for each in self.tables:
            yield from ("", *as_text(each))
        if self.notes:
            yield from ("", *self.notes)
        if self.claims:
            yield ""
            yield from as_text(
                Table([Column(kind="text")] * 2, [[each.word, f"{each.claim}: {each.evidence}"] for each in self.claims])
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as they are written to NAME.json."""
        return {
            "tables": [as_data(each) for each in self.tables],
            "claims": [vars(each) for each in self.claims],
            "notes": list(self.notes),
        }


def table(title: str, about: Sequence[str], rows: Iterable[tuple[Sequence[str], Values]]) -> Table:
    """Return estimates under a title, with n; `about` names the columns that say what a row is about."""
    rows = list(rows)
    names = dict.fromkeys(name for _, values in rows for name in values)
    columns = [*(Column(name, "text") for name in about), *(_column(name, [values for _, values in rows]) for name in names)]
    cells = [[*own, *(values.get(name, "") for name in names)] for own, values in rows]
    return Table(columns, cells, title=f"{title}  (value, 95 % interval, n)")


def _column(name: str, rows: Sequence[Values]) -> Column:
    """A column with two digits if all its values are small, such as Kendall's tau, otherwise one."""
    found = [row[name] for row in rows if name in row]
    largest = max(abs(bound or 0) for each in found for bound in (each.value, each.low, each.high))
    return Column(name, n=True, digits=1 if largest > 1.5 else 2)


def show(
    claim: str,
    found: Estimate,
    *,
    above: float = 0.0,
    within: float | None = None,
    required: bool = True,
    unit: str = " points",
    signed: bool = True,
) -> Claim:
    """Claim that a number exceeds a bound, or stays within one in either direction; its whole interval has to show it."""
    evidence = estimate_text(found, sign=signed, unit=unit, digits=1 if unit else 2)
    if found.low is None or found.high is None:
        return Claim(claim, None, evidence, required)
    yes, no = found.low > above, found.high < above
    if within is not None:
        yes, no = max(-found.low, found.high) < within, max(-found.high, found.low) > within
    return Claim(claim, True if yes else False if no else None, evidence, required)


def gap(higher: Estimate, lower: Estimate) -> Estimate:
    """Return the distance of two numbers that were estimated separately; zero is left out if their intervals do not touch."""
    if None in (higher.low, higher.high, lower.low, lower.high):
        return replace(higher, low=None, high=None) if lower.value is not None else lower
    return Estimate(
        higher.value - lower.value,  # type: ignore[operator]
        higher.low - lower.high,  # type: ignore[operator]
        higher.high - lower.low,  # type: ignore[operator]
        min(higher.n, lower.n),
    )
