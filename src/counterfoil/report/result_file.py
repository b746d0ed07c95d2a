"""A result as it is handed in and kept: one JSON file that says what every image came to, so that its numbers can be checked.

The observations of a run travel with the measures over them, so a board verifies and ranks results of protocols that are not
installed. Rows are bound to the images' pixels: results over other images of the same name do not pair.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from counterfoil.core.errors import BadRun, UsageError
from counterfoil.core.naming import part_name, without_folders
from counterfoil.core.records import Estimate
from counterfoil.core.tables import read_json
from counterfoil.metrics.estimate import Difference, Mean, Ratio, Share, Statistic
from counterfoil.metrics.observations import Measure, Observations
from counterfoil.report.provenance import test_settings
from counterfoil.store import Run
from counterfoil.store.files import key_of, plain
from counterfoil.store.later import asked_of

FORMAT: Literal["counterfoil-result-2"] = "counterfoil-result-2"
LARGEST = 64 * 2**20  # bytes of a result file; a million images take less
COMPLAINTS = 5  # told at once
_NEAR = 1e-4  # how far a number may be off; files carry six decimals
_NEAR_BOUND, _NEAR_SHARE = 0.5, 0.1  # the same for bounds, which depend on the draws: in points, and of the width
_NOT_THE_TEST = ("classes", "models", "chats")

Name = Annotated[str, Field(min_length=1, max_length=300)]
Sha256 = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Key = Annotated[str, Field(pattern=r"^[0-9a-f]{16}$")]
Letters = Annotated[str, Field(pattern=r"^[01]*$", description="one letter per row")]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Number(_Strict):
    """One estimate with its 95 % interval; without a value, the note says why there is none."""

    value: float | None
    low: float | None
    high: float | None
    n: int = Field(ge=0)
    note: str = Field("", max_length=500)

    @property
    def estimate(self) -> Estimate:
        """The same as a record."""
        return Estimate(self.value, self.low, self.high, self.n, self.note)


class Formula(_Strict):
    """The formula of a measure over sums of columns: a share or mean of two, a ratio or difference of two formulas."""

    kind: Literal["share", "mean", "ratio", "difference"]
    columns: tuple[Name, Name] | None = None
    most: float | None = None
    of: tuple[Formula, Formula] | None = None

    @classmethod
    def describe(cls, statistic: Statistic) -> Formula:
        """The formula of a statistic."""
        match statistic:
            case Share():
                return cls(kind="share", columns=(statistic.part, statistic.whole))
            case Mean():
                return cls(kind="mean", columns=(statistic.part, statistic.whole), most=statistic.most)
            case Ratio():
                return cls(kind="ratio", of=(cls.describe(statistic.above), cls.describe(statistic.below)))
            case Difference():
                return cls(kind="difference", of=(cls.describe(statistic.above), cls.describe(statistic.below)))
        raise TypeError(f"no formula for {type(statistic).__name__}")

    def statistic(self) -> Statistic:
        """The statistic it describes; ValueError where it describes none."""
        if self.kind in ("share", "mean"):
            if self.columns is None:
                raise ValueError(f"a {self.kind} needs columns")
            return Share(*self.columns) if self.kind == "share" else Mean(*self.columns, most=self.most)
        if self.of is None:
            raise ValueError(f"a {self.kind} needs two formulas")
        above, below = (each.statistic() for each in self.of)
        if self.kind == "difference":
            return Difference(above, below)
        if not isinstance(above, Share) or not isinstance(below, Share):
            raise ValueError("a ratio is one of two shares")
        return Ratio(above, below)


class DescribedMeasure(_Strict):
    """One measure: its formula, what it says, and its value."""

    formula: Formula
    meaning: str = Field("", max_length=500)
    higher_is_better: bool = True
    found: Number


class Grouping(_Strict):
    """Names of groups, as of classes, and the group of each row by its place among them; -1 for none."""

    names: list[Name]
    rows: list[int]

    @classmethod
    def describe(cls, values: NDArray[Any]) -> Grouping:
        """A column of names, where an empty one is none."""
        names, rows = np.unique(values.astype(str), return_inverse=True)
        none = int(len(names) > 0 and names[0] == "")
        return cls(names=names[none:].tolist(), rows=(rows - none).tolist())

    def values(self) -> NDArray[Any]:
        """The column it describes; ValueError where a row has a group that is not there."""
        if not all(-1 <= row < len(self.names) for row in self.rows):
            raise ValueError("a row of a group that has no name")
        return np.array([*self.names, ""], dtype=object)[self.rows]


class Tested(_Strict):
    """The model that was tested."""

    name: Name
    options: dict[str, Any] = Field(default_factory=dict)
    weights: Sha256 | None = Field(None, description="hash of its weights, where they could be seen")


class Test(_Strict):
    """The test that a model was put to. Results of equal tests stand in one table."""

    settings: dict[str, Any] = Field(description="the specification without the model and without what changes no number")
    classes: int = Field(ge=1)
    classes_sha256: Sha256
    against: str = Field("", max_length=300, description="the model the images were made against; empty: each against itself")
    surrogates: list[Name] = Field(default_factory=list, description="models whose mistakes decided which images are in the set")

    @property
    def identity(self) -> str:
        """The same for equal tests only."""
        return hashlib.sha256(json.dumps(self.model_dump(), sort_keys=True).encode()).hexdigest()[:12]


class ResultFile(_Strict):
    """One model's result in one test."""

    format: Literal["counterfoil-result-2"] = FORMAT
    protocol: Name
    model: Tested
    test: Test
    row: str = Field("image", max_length=50)
    cluster_of: str = Field("source image", max_length=50)
    keys: list[Key] = Field(description="a hash of each row's id and pixels, in rising order")
    columns: dict[Name, Letters | list[float]]
    groups: dict[Name, Grouping] = Field(default_factory=dict, description="class, factor … of each row, for slices")
    clusters: list[int] = Field(default_factory=list, description="rows with equal numbers are not independent; empty: all are")
    measures: dict[Name, DescribedMeasure] = Field(description="the first of `ranked` orders the table")
    ranked: list[Name] = Field(min_length=1)
    shown: list[Name] = Field(default_factory=list)
    seed: int = Field(ge=0, description="of the bootstrap")
    spec: dict[str, Any] = Field(description="what makes the run again: counterfoil run FILE")
    parameters: int | None = Field(None, ge=0)
    caution: str = Field("", max_length=1000, description="why the oracle may not be independent of this model")
    versions: dict[str, str] = Field(default_factory=dict)
    submitter: str = Field("", max_length=200)
    comment: str = Field("", max_length=2000)
    report: str = Field("", max_length=500, pattern=r"^(https://.*)?$", description="where its report is, if it is on the web")

    @property
    def surrogate(self) -> bool:
        """Tell whether the images of a test that other models took too were made against this one, or chosen by its mistakes."""
        return self.model.name in (*self.test.surrogates, self.test.against)

    @property
    def identity(self) -> str:
        """Its file name: the model, and a hash of what was tested on what."""
        content = [self.model.model_dump(), self.test.identity, self.keys]
        digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:12]
        slug = re.sub(r"[^A-Za-z0-9.]+", "-", self.model.name).strip("-.")[:40] or "model"
        return f"{slug}-{digest}"

    def observations(self) -> Observations:
        """Its rows in the form that comparisons read."""
        columns: dict[str, NDArray[Any]] = {}
        for name, column in self.columns.items():
            if isinstance(column, str):
                columns[name] = np.frombuffer(column.encode(), dtype=np.uint8) == ord("1")
            else:
                columns[name] = np.array(column, dtype=np.float64)
        return Observations(
            model=self.model.name,
            keys=np.array([int(key, 16) for key in self.keys], dtype=np.uint64),
            columns=columns,
            groups={name: each.values() for name, each in self.groups.items()},
            row=self.row,
            cluster=np.array(self.clusters, dtype=np.int64) if self.clusters else None,
            cluster_of=self.cluster_of,
            seed=self.seed,
            estimates={name: each.found.estimate for name, each in self.measures.items()},
        )

    def measure(self, name: str) -> Measure:
        """One of its measures."""
        each = self.measures[name]
        return Measure(name, each.formula.statistic(), each.meaning, each.higher_is_better)


def of_run(
    run: Run,
    observed: Observations,
    measures: Mapping[str, Measure],
    *,
    ranked: Sequence[str],
    shown: Sequence[str] = (),
    against: str = "",
    surrogates: Sequence[str] = (),
) -> ResultFile:
    """Make the result of one model of a finished run."""
    if run.results is None:
        raise UsageError(f"{run.path}: not finished, so it has no result yet; repeat its command first")
    pixels = _pixels(run)
    keys = [f"{key_of(f'{key:016x} {pixels.get(key, str())}'):016x}" for key in observed.keys.tolist()]
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.intp)
    known = {name: each for name, each in measures.items() if observed.has(each)}
    needed = {column for each in known.values() for term in each.statistic.terms for column in (term.part, term.whole)}
    found = {
        name: DescribedMeasure(
            formula=Formula.describe(each.statistic),
            meaning=each.meaning,
            higher_is_better=each.higher_is_better,
            found=Number(**observed.estimate(each).to_dict()),
        )
        for name, each in known.items()
    }
    own = part_name(run.spec.get("model"))
    part = run.spec.get("model") if observed.model == own else None
    try:
        return ResultFile(
            protocol=run.protocol,
            model=Tested(
                name=without_folders(observed.model),
                options=without_folders((part or {}).get("options") or {}) if isinstance(part, Mapping) else {},
                weights=_weights(run) if observed.model == own else None,
            ),
            test=_test(run, against=against, surrogates=surrogates),
            row=observed.row,
            cluster_of=observed.cluster_of,
            keys=sorted(keys),
            columns={name: _column(values[order]) for name, values in observed.columns.items() if name in needed},
            groups={name: Grouping.describe(values[order]) for name, values in observed.groups.items()},
            clusters=[] if observed.cluster is None else observed.cluster[order].tolist(),
            measures=found,
            ranked=[name for name in ranked if name in known],
            shown=[name for name in shown if name in known],
            seed=observed.seed if isinstance(observed.seed, int) else 0,
            spec=without_folders(plain(dict(run.spec))),
            parameters=run.provenance.get("parameters") if observed.model == own else None,
            caution=_caution(run, observed.model),
            versions={str(key): str(value) for key, value in (run.provenance.get("versions") or {}).items()},
        )
    except ValidationError as error:
        raise BadRun(f"{run.path}: makes no result for the board ({_complaints(error)}); run it again") from None


def read(path: Path) -> ResultFile:
    """Read a result file; UsageError, in one line, if it is not one that a board can take."""
    try:
        content = read_json(path, limit=LARGEST)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror}); give a result file") from None
    except ValueError as error:
        raise UsageError(f"{error}; give a file that 'counterfoil export RUN --format result' wrote") from None
    found = content.get("format") if isinstance(content, dict) else None
    if isinstance(found, str) and found.startswith("counterfoil-result-") and found != FORMAT:
        raise UsageError(f"{path}: written by another Counterfoil ({found}); this one reads {FORMAT}, make the result again")
    try:
        result = ResultFile.model_validate(content)
    except (ValidationError, RecursionError) as error:
        raise UsageError(f"{path}: not a result: {_complaints(error)}") from None
    if problems := list(verify(result)):
        raise UsageError(f"{path}: {'; '.join(problems[:COMPLAINTS])}")
    return result


def verify(result: ResultFile) -> Iterator[str]:
    """Say what a schema can't: rows that do not fit together, and numbers that do not follow from the rows."""
    rows = len(result.keys)
    wrong = [f"{name} has {len(column)}" for name, column in result.columns.items() if len(column) != rows]
    wrong += [f"{name} has {len(each.rows)}" for name, each in result.groups.items() if len(each.rows) != rows]
    if result.clusters and len(result.clusters) != rows:
        wrong.append(f"clusters has {len(result.clusters)}")
    if not rows:
        yield "keys: no rows"
    elif wrong:
        yield f"keys: {rows} rows, but {', '.join(wrong)}"
    elif any(first >= second for first, second in zip(result.keys, result.keys[1:], strict=False)):
        yield "keys: not in rising order, or one is there twice"
    elif missing := [name for name in (*result.ranked, *result.shown) if name not in result.measures]:
        yield f"measures: no {', '.join(missing)}"
    else:
        yield from _off(result)


def schema() -> dict[str, Any]:
    """The JSON schema of a result file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **ResultFile.model_json_schema()}


def _off(result: ResultFile) -> Iterator[str]:
    """The numbers that are not what the rows come to."""
    try:
        observed = result.observations()
    except ValueError as error:
        yield f"groups: {error}"
        return
    drawn = observed.take(np.arange(len(observed)))  # without the numbers that it claims
    for name, each in result.measures.items():
        try:
            measure = result.measure(name)
            if not observed.has(measure):
                yield f"measures.{name}: made of columns that are not there"
                continue
            true = drawn.estimate(measure)
        except ValueError as error:
            yield f"measures.{name}: {error}"
            continue
        if not _agree(each.found.estimate, true):
            yield f"measures.{name}: is given as {each.found.estimate}, but the rows come to {true}"


def _agree(claimed: Estimate, true: Estimate) -> bool:
    near = _NEAR_BOUND + _NEAR_SHARE * true.width
    pairs = ((claimed.value, true.value, _NEAR), (claimed.low, true.low, near), (claimed.high, true.high, near))
    return claimed.n == true.n and all((a is None) == (b is None) and abs((a or 0) - (b or 0)) <= far for a, b, far in pairs)


def _complaints(error: ValidationError | RecursionError) -> str:
    if isinstance(error, RecursionError):
        return "nested too deep"
    told = [f"{'.'.join(map(str, each['loc'])) or 'the file'}: {each['msg'].lower()}" for each in error.errors()[:COMPLAINTS]]
    more = f"; and {error.error_count() - COMPLAINTS} more" if error.error_count() > COMPLAINTS else ""
    return "; ".join(told) + more


def _column(values: NDArray[Any]) -> str | list[float]:
    if values.dtype == np.bool_:
        return "".join("1" if each else "0" for each in values.tolist())
    return [float(each) for each in values.tolist()]


def _test(run: Run, *, against: str, surrogates: Sequence[str]) -> Test:
    """The test that the run put models to; which models those are is no part of it."""
    settings = {key: value for key, value in test_settings(run).items() if key not in _NOT_THE_TEST and value is not None}
    names = json.dumps(list(run.classes), ensure_ascii=False).encode("utf-8", "replace")
    return Test(
        settings=without_folders(plain(settings)),
        classes=len(run.classes),
        classes_sha256=hashlib.sha256(names).hexdigest(),
        against=without_folders(against),
        surrogates=without_folders(surrogates),
    )


def _caution(run: Run, name: str) -> str:
    """Say why the oracle may be biased for this model: what the run found out of its own, or that it is of the same name."""
    if name == part_name(run.spec.get("model")):
        return str(run.provenance.get("caution") or "")
    later = next((each.caution for each in asked_of(run.path) if (each.role, each.name) == ("model", name)), "")
    if later:
        return f"the model is {later}"
    oracle = part_name(run.spec.get("oracle"))
    return f"the oracle {oracle} is this model" if name == oracle else ""


def _weights(run: Run) -> str | None:
    found = ((run.provenance.get("parts") or {}).get("model") or {}).get("weights")
    return found if isinstance(found, str) and re.fullmatch("[0-9a-f]{64}", found) else None


def _pixels(run: Run) -> dict[int, str]:
    """The hash of each source image's pixels, or of a painted one's, by the key of its row."""
    found = {}
    for batch in run.table("trials", columns=["image_id", "arm", "source_sha256", "image_sha256"]):
        for image_id, arm, source, own in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if arm in ("guided", "source", "painted"):
                found[key_of(image_id)] = own if arm == "painted" else source
    return found
