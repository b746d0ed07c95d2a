"""Published tables as data: read them, print them with runs next to the published rows, and run those whose parts are given.

The two never share a column, and every run states what its set-up does differently. Where a paper gives two values for one thing,
both are kept.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from counterfoil import protocols
from counterfoil.core.errors import BadSpec, UsageError
from counterfoil.core.naming import part_name
from counterfoil.core.records import Estimate
from counterfoil.core.spec import Data, Part, PartSpec, Strict, part
from counterfoil.core.tables import parse_yaml, read_text
from counterfoil.metrics.comparison import kendall
from counterfoil.metrics.tables import Cell, Column, Table, as_text
from counterfoil.protocols.reading import results_of
from counterfoil.store import Run

if TYPE_CHECKING:
    from counterfoil.studies.base import StudySettings
    from counterfoil.studies.runs import Runs

PaperCell = str | float
PAPERS = Path(__file__).parent / "papers"

_SAME_PARTS = {
    "oracle": ("clip-vit-base-patch32", "vit-b-32/openai", "vit-b-32-quickgelu/openai"),
    "generator": ("vqgan_imagenet_f16_16384", "imagenet-f16-16384"),
}
"""Names that the published parts have here."""
_WORDING = "an image of {class}"


class OtherValue(Strict):
    """Another value that the same paper gives for the same thing."""

    row: int
    column: str
    value: float
    where: str


class PublishedModel(Strict):
    """A model that a paper names: the part it is here, where its weights are published, and their format."""

    part: Part | None = None
    published: str = ""
    format: str = ""


class RunSetup(Strict):
    """Parts and search of the rows of one data set; what is None must be given."""

    data: Data | None = None
    models: Mapping[str, Part | None] = Field(default_factory=dict)
    generator: Part | None = None
    generators: Mapping[str, Part | None] = Field(default_factory=dict)
    """By the published names, where rows differ in them."""
    oracle: Part | None = None
    corrupted: Data | None = None
    """Images of the same classes on which each model's accuracy is the column SA*."""
    search: Mapping[str, Any] = Field(default_factory=dict)
    study: str | None = None
    """The study that answers for these rows, where they are no numbers of single runs."""
    options: Mapping[str, Any] = Field(default_factory=dict)


class PaperTable(Strict):
    """One published table."""

    title: str
    kind: Literal["models", "generators", "transfer", "classes", "factors", "facts"]
    """The subject of a row; `facts` if no run has such rows."""
    columns: tuple[str, ...]
    rows: tuple[tuple[PaperCell, ...], ...]
    also: tuple[OtherValue, ...] = ()
    notes: tuple[str, ...] = ()
    setup: Mapping[str, str] = Field(default_factory=dict)
    """As the paper states it for this table."""
    study: str | None = None
    run: Mapping[str, RunSetup] = Field(default_factory=dict)
    """By data set."""
    sources: Mapping[str, PublishedModel] = Field(default_factory=dict)
    number: int = 0
    authors: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns that say what a row is about."""
        return tuple(column for column, cell in zip(self.columns, self.rows[0], strict=True) if isinstance(cell, str))

    @property
    def numbers(self) -> tuple[str, ...]:
        """The columns that hold values."""
        return tuple(column for column in self.columns if column not in self.labels)

    def row(self, place: int) -> dict[str, PaperCell]:
        """Return a row by the names of its columns."""
        return dict(zip(self.columns, self.rows[place], strict=True))


def names() -> list[str]:
    """Return the published tables that come with the package, as in fmr/6."""
    papers = sorted(path.parent.name for path in PAPERS.glob("*/paper.yaml"))
    return [f"{paper}/{number}" for paper in papers for number in sorted(_numbers(paper))]


def _numbers(paper: str) -> list[int]:
    return [int(each.name[5:-5]) for each in (PAPERS / paper).glob("table*.yaml")]


@cache
def load(name: str) -> PaperTable:
    """Return a table by name, as in fmr/6, or from a YAML file of the same form."""
    if name.endswith((".yaml", ".yml")):
        return _parse(Path(name), {})
    paper, _, number = name.partition("/")
    folder = PAPERS / paper
    if not (folder / "paper.yaml").is_file() or not number.isdecimal() or int(number) not in _numbers(paper):
        raise UsageError(f"{name}: no such table; 'counterfoil study' lists those that there are")
    about = parse_yaml(read_text(folder / "paper.yaml"), what=paper)
    return _parse(folder / f"table{int(number):02d}.yaml", {"number": int(number), **about})


def _parse(path: Path, about: Mapping[str, Any]) -> PaperTable:
    values = parse_yaml(read_text(path), what=str(path))
    if not isinstance(values, dict) or not values.get("rows"):
        raise BadSpec(f"{path}: a published table has title, kind, columns and rows")
    setup = {**about.get("setup", {}), **values.get("setup", {})}
    sources = about.get("models", {})
    run = {label: _complete(own, about.get("parts", {}).get(label, {}), sources) for label, own in values.get("run", {}).items()}
    known = {key: about[key] for key in ("number", "authors") if key in about}
    named = {name: sources[name] for own in run.values() for name in own.get("models", ()) if name in sources}
    try:
        return PaperTable.model_validate({**values, **known, "setup": setup, "run": run, "sources": named})
    except ValidationError as error:
        first = error.errors()[0]
        raise BadSpec(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg'].lower()}") from None


def _complete(own: Mapping[str, Any], shared: Mapping[str, Any], sources: Mapping[str, Any]) -> dict[str, Any]:
    """Fill in a paper's parts for that data set, and those of the models that are named."""
    models = own.get("models", {})
    if isinstance(models, list):
        models = {name: sources[name].get("part") for name in models}
    return {**shared, **own, "models": models, "search": {**shared.get("search", {}), **own.get("search", {})}}


@dataclass(frozen=True)
class MeasuredRow:
    """One row of a run: what it is about, its values, what differs, and the published labels a user gave it."""

    labels: Mapping[str, str]
    values: Mapping[str, Estimate]
    differs: tuple[str, ...]
    named: Mapping[str, str]


def rows_of(run: Run, table: PaperTable, published: Mapping[str, str] | str = "") -> Iterator[MeasuredRow]:
    """Yield the rows that a run has for a table of this kind.

    `published` gives the published names of models and generators, by their names here; a plain name is the own model's.
    """
    protocol, own = protocols.of(run), part_name(run.spec.get("model"))
    common = {"data": part_name(run.spec.get("data")), "generator": part_name(run.spec.get("generator"))}
    differs = tuple(_departures(run, table))
    known = {own: published} if isinstance(published, str) and published else dict(published or {})
    for name in protocol.models(run, scored=table.kind == "transfer"):
        results = results_of(run, model=None if name == own else name)
        groups = results.get({"classes": "per_class", "factors": "factors"}.get(table.kind, ""), {})
        for group, entry in (*groups.items(), ("all", results)):
            labels = {**common, "made against": own, "model": name, "class": group, "factor": group}
            named = {
                column: known[labels[column]] for column in ("made against", "model", "generator") if labels[column] in known
            }
            values = {
                key: Estimate.from_dict(each) for key, each in entry.items() if isinstance(each, Mapping) and "value" in each
            }
            yield MeasuredRow(labels, values, differs, named)


def _departures(run: Run, table: PaperTable) -> Iterator[str]:
    """Yield each departure from the published set-up; the data is left to the row, as tables have several."""
    setup = table.setup
    for role in sorted(setup.keys() & _SAME_PARTS.keys(), reverse=True):
        name = part_name(run.spec.get(role))
        if (role, table.kind) != ("generator", "generators") and not any(each in name.lower() for each in _SAME_PARTS[role]):
            yield f"{role} {name} (published: {setup.get(role, 'not stated')})"
    oracle = run.spec.get("oracle")
    given = oracle.get("options", {}).get("templates", ()) if isinstance(oracle, Mapping) else ()
    templates = [given] if isinstance(given, str) else list(given)
    if templates and [each.replace("{}", "{class}") for each in templates] != [_WORDING]:
        yield f"oracle asked {', '.join(map(repr, templates))} (published: {_WORDING!r})"
    search = run.spec.get("search", {})
    step = setup.get("step", "not stated")
    if "step" in search and (f"{search['step']:g}", search.get("unit")) != (step.split(",")[0], "absolute"):
        yield f"step {search['step']:g}, unit {search.get('unit', 'scale')} (published: {step})"
    if "budget" in search and str(search["budget"]) != setup.get("budget"):
        yield f"budget of {search['budget']} steps (published: {setup.get('budget', 'not stated')})"
    if "norm" in search:
        yield f"gradient normalised by {search['norm']} (published: {setup.get('norm', 'not stated')})"
    if search.get("accept", "label") != "label":
        yield f"accepted by {search['accept']} with the oracle's answer on the source (published: it names the label)"
    size = run.provenance.get("size")
    if size is not None and str(size) != setup.get("size"):
        yield f"images of {size} px (published: {setup.get('size', 'not stated')})"


def same_words(published: str, ours: str) -> bool:
    """Tell whether a name here contains all the words of a published one, or all of them as one: `CIFAR10` is CIFAR-10."""
    return set(_words(published)) <= set(_words(ours)) or "".join(_words(published)) in _words(ours)


def _words(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def print_table(table: PaperTable, ours: Sequence[MeasuredRow] = ()) -> Iterator[str]:
    """Yield the published rows, and next to each the row of ours with the same labels; what differs is lettered below."""
    yield f"Table {table.number}: {table.title}" if table.number else table.title
    if table.authors:
        yield f"published by {table.authors}"
    yield ""
    placed, other = _place(table, ours)
    marks: dict[str, str] = {}
    rows = [_cells(table, place, placed.get(place), marks, beside=bool(ours)) for place in range(len(table.rows))]
    rows += [_cells(table, None, row, marks, beside=True) for row in other]
    columns = [*(Column(name, "text") for name in table.labels), *(Column(name) for name in table.numbers)]
    if ours:
        columns += [*(Column(f"our {name} (95 % interval)") for name in table.numbers), Column("differs", "text")]
    yield from as_text(Table(columns, rows, notes=[*_notes(table)]))
    if marks:
        yield "\nOur runs differ from the published ones; the numbers are not for the same test:"
        yield from (f"  {letter}  {text}" for text, letter in marks.items())


def _place(table: PaperTable, ours: Sequence[MeasuredRow]) -> tuple[dict[int, MeasuredRow], list[MeasuredRow]]:
    """Find the published row of each of ours; the rest, and a second one for the same place, follow below."""
    placed: dict[int, MeasuredRow] = {}
    other: list[MeasuredRow] = []
    published = list(dict.fromkeys(str(table.row(place).get("model", "")) for place in range(len(table.rows))))
    for row in ours:
        if (meant := row.named.get("model", published[0])).lower() not in map(str.lower, published):
            raise UsageError(f"{meant!r}: no such row in Table {table.number}; it has {', '.join(published)}")
        places = [place for place in range(len(table.rows)) if _matches(table.row(place), row)]
        if len(places) > 1:  # the same model on several data sets
            places = [place for place in places if same_words(str(table.row(place)["data"]), row.labels["data"])]
        if len(places) == 1 and places[0] not in placed:
            placed[places[0]] = row
        else:
            other.append(row)
    return placed, other


def _matches(published: dict[str, PaperCell], row: MeasuredRow) -> bool:
    for column in ("model", "made against", "generator", "class", "factor"):
        wanted = str(published.get(column, ""))
        if column in row.named and column in published:
            if wanted.lower() != row.named[column].lower():
                return False
        elif (column in published or column == "model") and not same_words(wanted, row.labels[column]):
            return False
    return True


def _cells(table: PaperTable, place: int | None, row: MeasuredRow | None, marks: dict[str, str], *, beside: bool) -> list[Cell]:
    """A line of the printed table: labels, published values, our values, and the marks of what differs."""
    published = {} if place is None else table.row(place)
    about = [str(published[column]) if published else (row.labels[column] if row else "") for column in table.labels]
    cells: list[Cell] = [*about, *("–" if place is None else _published_value(table, place, name) for name in table.numbers)]
    if row is None:
        return [*cells, *([""] * (len(table.numbers) + 1) if beside else [])]
    images = max((each.n for each in row.values.values()), default=0)
    differs = [f"data {row.labels['data']}, {images} images (published: {published.get('data', 'none such')})"]
    for column in ("model", "made against"):
        if column in published and not same_words(str(published[column]), row.labels[column]):
            differs.append(f"{column} {row.labels[column]} (published: {published[column]})")
    letters = (first + second for first in ("", *string.ascii_lowercase) for second in string.ascii_lowercase)
    free = (letter for letter in letters if letter not in marks.values())
    for text in (*differs, *row.differs):
        if text not in marks:
            marks[text] = next(free)
    ours = [row.values.get(column, "–") for column in table.numbers]
    return [*cells, *ours, " ".join(marks[text] for text in (*differs, *row.differs))]


def _published_value(table: PaperTable, place: int, column: str) -> str:
    index = table.columns.index(column)
    digits = max(len(str(row[index]).partition(".")[2]) for row in table.rows)  # YAML drops zeros at the end
    star = "*" * any(each.row == place and each.column == column for each in table.also)
    return f"{float(table.rows[place][index]):.{digits}f}{star}"


def _notes(table: PaperTable) -> Iterator[str]:
    """Yield contradictions, notes, and agreement of the published orders."""
    if table.also:
        yield "\n* the paper has other values too:"
        for each in table.also:
            about = ", ".join(str(table.row(each.row)[label]) for label in table.labels)
            yield f"  {about}: {each.column} {each.value:g} in {each.where}"
    yield from (f"\n{note}" for note in table.notes)
    if table.kind == "generators":
        yield from _published_agreement(table)


def _published_agreement(table: PaperTable) -> Iterator[str]:
    rows = [table.row(place) for place in range(len(table.rows))]
    values: dict[str, list[float]] = {}
    for row in rows:
        values.setdefault(str(row["generator"]), []).append(float(row["FMR"]))
    yield "\nKendall's tau between the published orders of models, by FMR (no intervals: the paper gives no counts):"
    for one, two in combinations(values, 2):
        yield f"  {one} against {two}: {float(kendall(np.array(values[one]), np.array(values[two]))):.2f}"


def with_parts(table: PaperTable, assignments: Sequence[str]) -> PaperTable:
    """Return the table with parts that a user gives, as in `MNIST.models.LeNet=NAME` and `MNIST.data.root=FOLDER`."""
    run = {label: setup.model_dump() for label, setup in table.run.items()}
    for assignment in assignments:
        ((key, value),) = part("", [assignment]).options.items()
        label = next((label for label in run if key.startswith(f"{label}.")), "")
        inner = key[len(label) + 1 :].split(".")
        if not label or inner[0] not in RunSetup.model_fields:
            raise UsageError(f"--set {key}: write DATA.KEY=VALUE, as in {next(iter(run), 'DATA')}.generator=NAME")
        at = run[label]
        for step in inner[:-1]:
            at = at[step] if at.get(step) is not None else at.setdefault(step, {})
            at = at.get("options", at)
        text = assignment.partition("=")[2].strip()
        at[inner[-1]] = text if text.endswith(":") else value  # a part without a name is no YAML mapping
    try:
        return PaperTable.model_validate({**table.model_dump(), "run": run})
    except ValidationError as error:
        first = error.errors()[0]
        raise UsageError(f"--set {'.'.join(map(str, first['loc'][1:]))}: {first['msg'].lower()}") from None


def title_of(paper: str) -> str:
    """A paper's title."""
    return str(parse_yaml(read_text(PAPERS / paper / "paper.yaml"), what=paper)["title"])


def items(paper: str) -> list[tuple[str, str, str]]:
    """List everything in a paper: what it is, the command for it, and whether and on what that has been run."""
    found = []
    for table_name in (each for each in names() if each.startswith(f"{paper}/")):
        table = load(table_name)
        lost = sorted(
            {each for setup in table.run.values() for each, part in {**setup.models, **setup.generators}.items() if not part}
        )
        states = ["run on stand-ins"] if table.run else []
        states += [f"run on the lab by 'counterfoil study {table.study}'"] if table.study else []
        states += [f"without published weights: {', '.join(lost)}"] if lost else []
        command = f"counterfoil study {table_name}{' --run' if table.run else ''}"
        title = f"Table {table.number}: {table.title}" if table.number else table.title
        found.append((title, command, "; ".join(states) or "numbers only: nothing to run"))
    further = parse_yaml(read_text(PAPERS / paper / "paper.yaml"), what=paper).get("items", ())
    return [*found, *(tuple(each) for each in further)]


def check_parts(table: PaperTable) -> Table:
    """Return what each row of a published table lacks on this machine, and where that is to be had."""
    rows: list[list[Cell]] = []
    for place in range(len(table.rows)):
        row = table.row(place)
        setups = [setup for label, setup in table.run.items() if label == row.get("data", label)]
        about: list[Cell] = [str(row[label]) for label in table.labels]
        rows += [[*about, "; ".join(_lacks(row, setup)) or "ready"] for setup in setups] or [[*about, "nothing to run"]]
    sources = (": ".join(filter(None, (name, each.published, each.format))) for name, each in table.sources.items())
    columns = [Column(name, "text") for name in (*table.labels, "on this machine")]
    return Table(columns, rows, notes=["", *dict.fromkeys(sources)])


def _lacks(row: Mapping[str, PaperCell], setup: RunSetup) -> Iterator[str]:
    """Yield what a row of that set-up lacks."""
    generator = setup.generators.get(str(row["generator"])) if setup.generators and "generator" in row else setup.generator
    named = {"data": setup.data, "generator": generator, "oracle": setup.oracle}
    named |= {"SA*": setup.corrupted} if setup.corrupted else {}
    models = {str(row[column]) for column in ("model", "made against") if str(row.get(column)) in setup.models}
    named |= {name: setup.models[name] for name in sorted(models or setup.models)}
    named |= {each["name"]: PartSpec.model_validate(each) for each in setup.options.get("oracles", ())}
    for name, each in named.items():
        if each is None:
            yield f"{name} has to be given"
        elif not (place := _place_of(each)).exists():
            yield f"{name}: no {place}"


_ON_DISK = ("folder", "csv", "imagenet-c", "tensors", "vqgan", "adm", "vdvae", "stylegan_xl", "autoencoder")
_ON_HUB = {"timm": "timm/{}", "clip": "{}"}


def _place_of(each: PartSpec) -> Path:
    """The file or folder that a part is read from; of one on the hub its place in the cache."""
    kind, _, rest = each.name.removeprefix("subset:").removeprefix("classifier:").partition(":")
    options = {**each.options, **each.options.get("options", {})}
    if kind in _ON_HUB and "weights" not in options:
        from huggingface_hub import constants

        repository = _ON_HUB[kind].format(rest)
        return Path(rest) if Path(rest).exists() else Path(constants.HF_HUB_CACHE, f"models--{repository.replace('/', '--')}")
    place = {"torchvision-data": options.get("root", "data"), **dict.fromkeys(_ON_DISK, rest)}.get(kind, ".")
    return Path(options.get("weights", place)).expanduser()


def _is_here(each: PartSpec | None) -> bool:
    """Tell whether a part is given and, unless it can be fetched by name, on this machine."""
    return each is not None and (
        (each.name.partition(":")[0] in _ON_HUB and "weights" not in each.options) or _place_of(each).exists()
    )


def run_table(table: PaperTable, base: StudySettings, runs: Runs) -> tuple[list[MeasuredRow], list[str]]:
    """Run the rows whose parts are all given; return them, and lines about the others and what studies found."""
    from counterfoil.studies import runner

    rows: list[MeasuredRow] = []
    lines: list[str] = []
    for label, setup in table.run.items():
        shared = {"data": setup.data, "generator": setup.generator, "oracle": setup.oracle}
        several = {"models": setup.models, "generators": setup.generators}
        lacking = [f"{label}.{role}" for role, each in shared.items() if not _is_here(each)]
        lost = [f"{label}.{kind}.{name}" for kind, parts in several.items() for name, each in parts.items() if not _is_here(each)]
        if lacking or lost:
            lines.append(f"{label}: not run for lack of {', '.join([*lacking, *lost])}; --dry-run says where to get them")
        models = {name: each for name, each in setup.models.items() if each is not None and _is_here(each)}
        if lacking or not models:
            continue
        own = replace(base, **shared, search={**setup.search, **base.search}, models=tuple(models.values()))  # type: ignore[arg-type]
        if setup.study:
            lines += runner.run(setup.study, replace(own, options=setup.options), runs).lines()
            continue
        generators = {name: each for name, each in setup.generators.items() if each is not None and _is_here(each)}
        against = {str(table.row(place).get("made against", "")) for place in range(len(table.rows))}
        for generator, (name, model) in product(generators or {"": own.generator}, models.items()):
            if "made against" in table.columns and name not in against:
                continue  # it only predicts
            made = runs.under(replace(own, generator=generators.get(generator, own.generator)))
            run = made.make(model)
            known = {part_name(run.spec.get("generator")): generator} if generator else {}
            if table.kind == "transfer":
                known |= {other: other for other in models}
                for other, its in models.items():
                    if other != name:
                        made.observe(run, model=its, name=other)
            more = {"SA*": made.predict(model, setup.corrupted)} if setup.corrupted and _is_here(setup.corrupted) else {}
            measured = rows_of(run, table, {**known, model.name: name})
            rows += (replace(each, values={**each.values, **more}) for each in measured)
    return rows, lines
