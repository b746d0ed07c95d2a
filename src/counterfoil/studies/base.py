"""A study: an experiment on the instrument itself, its settings, and what it finds: tables of estimates, and claims about them.

By default a study runs on a world whose truth is known, which an installed package describes under the entry point group
`counterfoil.worlds`; with other parts it runs on those. No torch here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from counterfoil.core.errors import UsageError
from counterfoil.core.records import Estimate
from counterfoil.core.spec import Data, Part, PartSpec, Strict
from counterfoil.metrics.comparison import Paired, pair_of
from counterfoil.metrics.tables import estimate_text
from counterfoil.protocols.fmr.results import MEASURES, Outcomes, observations_of, scores

if TYPE_CHECKING:
    from counterfoil.studies.runs import Runs

USUAL = ("SA", "PA", "FMR", "FMR_matched", "VR", "steps")


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
        return World(
            entry.name, DefaultParts.model_validate(told["parts"]), told["other_images"], tuple(told["ordered"]), told["studies"]
        )
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
        options = {**study.options, **{key: _as(study.options[key], value) for key, value in own.get("options", {}).items()}}
        images = self.images or own.get("images", study.images)
        return replace(self, models=models, images=images, options={**options, **self.options})


def _as(default: Any, value: Any) -> Any:
    return tuple(value) if isinstance(default, tuple) else value


@dataclass(frozen=True)
class StudyRow:
    """One line of a table: what it is about, and its values by column."""

    about: tuple[str, ...]
    values: Mapping[str, Estimate]


@dataclass(frozen=True)
class StudyTable:
    """Estimates under a title. `about` names the columns that a row's first cells belong to."""

    title: str
    about: tuple[str, ...]
    rows: tuple[StudyRow, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of values, in the order in which the rows bring them."""
        return tuple(dict.fromkeys(name for row in self.rows for name in row.values))

    def lines(self) -> Iterator[str]:
        """Yield the table as text."""
        yield f"{self.title}  (value, 95 % interval, n)"
        body = [[*row.about, *(_cell(row.values.get(name)) for name in self.columns)] for row in self.rows]
        yield from align([[*self.about, *self.columns], *body])

    def to_dict(self) -> dict[str, Any]:
        """Return the table as it is written to NAME.json."""
        rows = [
            {**dict(zip(self.about, row.about, strict=True)), **{name: each.to_dict() for name, each in row.values.items()}}
            for row in self.rows
        ]
        return {"title": self.title, "rows": rows}


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

    tables: tuple[StudyTable, ...]
    claims: tuple[Claim, ...] = ()
    notes: tuple[str, ...] = ()

    def lines(self) -> Iterator[str]:
        """Yield tables, notes and claims as text."""
        for table in self.tables:
            yield ""
            yield from table.lines()
        if self.notes:
            yield ""
            yield from self.notes
        if self.claims:
            yield ""
            width = max(len(each.word) for each in self.claims)
            yield from (f"{each.word:<{width}}  {each.claim}: {each.evidence}" for each in self.claims)

    def to_dict(self) -> dict[str, Any]:
        """Return the findings as they are written to NAME.json."""
        return {
            "tables": [table.to_dict() for table in self.tables],
            "claims": [
                {"claim": each.claim, "holds": each.holds, "required": each.required, "evidence": each.evidence}
                for each in self.claims
            ],
            "notes": list(self.notes),
        }


def row(about: Sequence[str], outcomes: Outcomes, names: Sequence[str] = USUAL, *, seed: int = 0) -> StudyRow:
    """Return the chosen numbers of one model on one run."""
    found = scores(outcomes, seed=seed)
    return StudyRow(tuple(about), {name: found[name] for name in names if name in found})


def difference(first: Outcomes, second: Outcomes, measure: str = "FMR", *, seed: int = 0) -> Estimate:
    """Return by how much the first exceeds the second, paired by source image."""
    paired = Paired({"first": observations_of(first), "second": observations_of(second)}, seed=seed)
    return pair_of(paired, MEASURES[measure], "first", "second").difference


def apart(claim: str, higher: Estimate, lower: Estimate, *, required: bool = True, unit: str = " %") -> Claim:
    """Claim that one number is higher than another, shown by intervals that do not touch."""
    if higher.value is None or lower.value is None:
        missing = higher if higher.value is None else lower
        return Claim(claim, None, f"undefined: {missing.note}", required)
    evidence = f"{estimate_text(higher, unit=unit)} against {estimate_text(lower, unit=unit)}"
    if higher.low is None or higher.high is None or lower.low is None or lower.high is None:
        return Claim(claim, None, evidence, required)
    holds = True if higher.low > lower.high else False if higher.high < lower.low else None
    return Claim(claim, holds, evidence, required)


def positive(claim: str, found: Estimate, *, required: bool = True, unit: str = " points") -> Claim:
    """Claim that a difference is above zero, shown by an interval that leaves zero out."""
    evidence = estimate_text(found, sign=True, unit=unit)
    if found.low is None or found.high is None:
        return Claim(claim, None, evidence, required)
    holds = True if found.low > 0 else False if found.high < 0 else None
    return Claim(claim, holds, evidence, required)


def within(claim: str, found: Estimate, bound: float, *, required: bool = True) -> Claim:
    """Claim that a difference is smaller than a bound in either direction, shown by its whole interval."""
    if found.value is None or found.low is None or found.high is None:
        return Claim(claim, None, f"undefined: {found.note}", required)
    inside, outside = max(-found.low, found.high) < bound, max(-found.high, found.low) > bound
    evidence = f"{found.value:+.1f} points ({found.low:+.1f} to {found.high:+.1f})".replace("-", "−")
    return Claim(claim, True if inside else False if outside else None, evidence, required)


def align(rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield rows of cells as lines with aligned columns."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for each in rows:
        yield ("  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(each, widths, strict=True))).rstrip()


def _cell(found: Estimate | None) -> str:
    if found is None:
        return ""
    if found.value is None:
        return f"– ({found.note})"
    digits = 1 if max(abs(found.value), abs(found.low or 0), abs(found.high or 0)) > 1.5 else 2
    text = f"{found.value:.{digits}f}"
    if found.low is None or found.high is None:
        text += f" ({found.note})"
    elif found.low != found.high:
        text += f" ({found.low:.{digits}f} to {found.high:.{digits}f})"
    return f"{text}, {found.n}".replace("-", "−")
