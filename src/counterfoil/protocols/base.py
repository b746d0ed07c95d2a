"""The interface of a protocol, which the rest of the program asks. Nothing here imports torch.

A protocol makes images, and reads the numbers off a run that holds them. The command line, the Python entry point, studies
and the web server find protocols by name (`protocols.get`) or by run (`protocols.of`) and ask them; the store, metrics and
reports are told.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from counterfoil import store
from counterfoil.core.errors import BadData, BadImage, BadRun, BadSpec, UsageError, printable
from counterfoil.core.records import Prediction, Trial, Verdict
from counterfoil.core.spec import RunSpec
from counterfoil.store import Run

if TYPE_CHECKING:
    from counterfoil.metrics.observations import Measure, Observations
    from counterfoil.metrics.tables import Table
    from counterfoil.parts.datasets.image_set import ImageSet
    from counterfoil.protocols.stages import Stage, Tables
    from counterfoil.protocols.workspace import Given, Source, Workspace
    from counterfoil.report.page import Caution, Page
    from counterfoil.report.site import Site

Watch = Callable[[Any], None]
"""Takes a run's progress after every image, or every item of a stage."""
Tell = Callable[[str], None]
"""Takes a line for people: an image that was skipped, work that had to be redone."""


EXECUTORS = ("local", "ray")


@dataclass(frozen=True)
class Execution:
    """The executor by name, and what it has to be told. No part of a specification: it decides no more than a last digit."""

    executor: str = "local"
    workers: int | None = None  # of ray: by default one per GPU, or one per core
    address: str | None = None  # of ray: a cluster that is there; by default one is started on this machine
    threads: int | None = None  # of a process that computes on a processor: by default all cores, or a worker's share of them

    def __post_init__(self) -> None:
        if self.executor not in EXECUTORS:
            raise UsageError(f"no executor named {self.executor!r}; there are {', '.join(EXECUTORS)}")
        for name, number in (("worker", self.workers), ("thread", self.threads)):
            if number is not None and number < 1:
                raise UsageError(f"a run needs at least one {name}, got {number}; leave --{name}s out for the most")
        if self.executor == "local" and (self.workers is not None or self.address is not None):
            raise UsageError("--workers and --ray-address need --executor ray; the local executor is this process alone")

    @classmethod
    def of(cls, written: Any, **given: Any) -> Execution:
        """From the section `execution` of a specification's file, if there is one, and what was given in addition."""
        known = [each.name for each in fields(cls)]
        if written is not None and not (isinstance(written, Mapping) and set(written) <= set(known)):
            raise BadSpec(f"execution: keys are {', '.join(known)}, got {written!r}")
        values = {**(written or {}), **{name: value for name, value in given.items() if value is not None}}
        if not all(type(value) is (int if name in ("workers", "threads") else str) for name, value in values.items()):
            raise BadSpec(f"execution: workers and threads are numbers, executor and address are words, got {values!r}")
        return cls(**values)

    @contextmanager
    def computing(self) -> Iterator[None]:
        """For what this process computes itself: with as many threads as asked for."""
        import torch

        before = torch.get_num_threads()
        if self.threads is not None and self.executor == "local":
            torch.set_num_threads(self.threads)
        try:
            yield
        finally:
            torch.set_num_threads(before)


LOCAL = Execution()


@dataclass(frozen=True)
class Progress:
    """Progress of a run, or of one stage of it."""

    done: int
    total: int | None
    validated: int = 0  # of which something was made; of a stage, results that no check rejected
    skipped: int = 0  # that could not be used; of a stage, results that a check rejected
    stage: str = ""

    def more(self, *, validated: int, skipped: int) -> Progress:
        """One image or item further."""
        return replace(self, done=self.done + 1, validated=self.validated + validated, skipped=self.skipped + skipped)


@dataclass(frozen=True)
class Outcome:
    """All records and images of one source image."""

    trials: tuple[Trial, ...]
    predictions: tuple[Prediction, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    images: tuple[bytes, ...] = ()  # PNG files that the trials name, unless the run has them already
    note: str = ""  # a line for people, where the image was skipped

    @property
    def image_id(self) -> str:
        return self.trials[0].image_id

    @property
    def validated(self) -> bool:
        """True if something was made of it."""
        return self.trials[0].validated


def stop_at(problem: BadImage | str) -> BadData:
    """The error that ends a strict run at an image."""
    what = "unreadable image" if isinstance(problem, BadImage) else "failure"
    kept = "what is finished is kept, and the same command without strict resumes it"
    return BadData(f"{problem} (strict: stopping at the first {what}; {kept})")


def require_complete(spec: RunSpec, out: Path, *, left_out: int) -> None:
    """Refuse to resume strictly a run that has left images out."""
    if spec.strict and left_out:
        raise BadData(
            f"{out}: images that could not be used were left out before ({left_out}), and strict allows none; "
            "resume without strict, or repair them and choose another --out"
        )


def check_folder(out: Path, spec: RunSpec) -> None:
    """Refuse a folder with another run, or with one that a process is writing, before any part is loaded."""
    try:
        str(out).encode()
    except UnicodeEncodeError:
        raise BadRun(f"{printable(str(out))}: the folder's name is not text in UTF-8; choose another --out") from None
    store.check(out, spec.model_dump(mode="json"))


class _Imported:
    def __init__(self, place: str) -> None:
        self.place = place

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            return self
        module, _, name = self.place.partition(":")
        return attrgetter(name)(import_module(module))


def lazy(place: str) -> Any:
    """Take a member of a protocol from a module, as in `package.module:function`, that is imported when it is asked for."""
    return _Imported(place)


class Protocol(ABC):
    """One way to stress-test a classifier. An instance is registered under the entry point group `counterfoil.protocols`."""

    name: ClassVar[str]
    """As in `protocol: lance`."""
    title: ClassVar[str]
    """One line for lists and help."""
    about: ClassVar[str] = ""
    """Description of how the images are made, for the datasheet of an exported set."""
    spec: ClassVar[type[RunSpec]]
    compared: ClassVar[Sequence[str]] = ("accuracy_source", "accuracy", "drop")
    """The measures that `compare` prints unless others are named."""
    held: ClassVar[Sequence[str]] = ("accuracy",)
    """The measures that `gate` holds against a baseline where no bar names one."""
    ranked: ClassVar[Sequence[str]] = ("accuracy",)
    """The measures that a board ranks models by; the first orders its rows."""
    against_model: ClassVar[bool] = False
    """True if images are made against the run's own model, so that it has no part in a set of them."""
    placed: ClassVar[bool] = True
    """True if all parts are on the device from the beginning; else each is on the CPU until it works."""
    clean: ClassVar[str] = "accuracy_source"
    """The measure of images that nothing was done to; the order of models by other measures is set against its own."""

    # Making images

    @abstractmethod
    def run(
        self,
        spec: Any,
        out: Path,
        *,
        given: Given | None = None,
        execution: Execution | None = None,
        stage: str | None = None,
        watch: Watch = lambda progress: None,
        tell: Tell = lambda line: None,
    ) -> Run:
        """Run a specification into the directory `out`, or resume it; with `stage`, only as far as that one."""

    def workspace(self, spec: Any, given: Given | None = None) -> Workspace[Any]:
        """Build the parts of a run."""
        from counterfoil.protocols.workspace import Workspace

        return Workspace.open(spec, given, place=self.placed)

    def images(self, spec: Any) -> int:
        """Count the images that a run is about."""
        from counterfoil.protocols.workspace import open_data

        return len(open_data(spec))

    def cost(self, spec: Any, images: int) -> Mapping[str, int]:
        """Estimate what a run asks of its parts, as upper bounds by what is counted."""
        return {"images": images}

    report_pages = lazy("counterfoil.protocols.pages:ReportPages")
    """The class of the pages of a report."""

    # Reading a run: unless a protocol says otherwise, as pairs of a source image and an image made of it

    @property
    def measures(self) -> Mapping[str, Measure]:
        """The numbers that can be compared, barred and ranked, by name; the first one ranks."""
        from counterfoil.protocols.reading import PAIRS

        return PAIRS

    def measures_of(self, run: Run) -> Mapping[str, Measure]:
        """Those of them that a run has."""
        return self.measures

    def results(self, run: Run, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
        """Compute the content of `results.json` from the answers of a model and an oracle, by default the run's own."""
        from counterfoil.protocols.reading import results_of_pairs

        return results_of_pairs(run, model=model, oracle=oracle)

    def observe(self, run: Run, *, model: str | None = None, oracle: str | None = None) -> Observations:
        """Read what a model did on each of a run's images, in the form that comparisons and gates take."""
        from counterfoil.protocols.reading import observe_pairs

        return observe_pairs(run, model=model, oracle=oracle)

    def models(self, run: Run, *, scored: bool = False) -> list[str]:
        """List the tested models: the run's own, then, with `scored`, those that answered later."""
        from counterfoil.core.naming import part_name
        from counterfoil.metrics.observations import models_of

        return models_of(run) if scored else [part_name(run.spec.get("model"))]

    def on_board(self, run: Run, *, scored: bool = False) -> tuple[list[str], list[str]]:
        """List the models that a board shows of a run, and those among them whose mistakes decided which images there are."""
        return self.models(run, scored=scored), []

    def remarks(self, runs: Sequence[Run], models: Mapping[str, str]) -> list[str]:
        """Say what a reader must know before a comparison; `models` are the models' names by what they are called there."""
        return []

    def transfer(self, runs: Sequence[Run], names: Sequence[str]) -> list[Table]:
        """Cross the models that images were made against with all models that were scored on them, one table per number."""
        raise UsageError(f"--transfer: the protocol {self.name} makes no images against a model; compare its runs without it")

    def unfair(self, run: Run, model: str, measures: Sequence[str]) -> str:
        """Say why a model cannot be judged by these measures of a run; empty where it can."""
        return ""

    def tables(self, results: Mapping[str, Any]) -> list[Table]:
        """Put results into tables, those for the terminal's summary first."""
        from counterfoil.protocols.reading import tables_of_pairs

        return tables_of_pairs(results)

    def text(self, results: Mapping[str, Any]) -> str:
        from counterfoil.metrics.tables import text_of

        return text_of(self.tables(results))

    def citation(self, run: Run, results: Mapping[str, Any]) -> str:
        """Describe a run's set-up and its numbers in one paragraph, to be pasted into a paper; empty where none is written."""
        return ""

    def extent(self, counts: Mapping[str, Any]) -> str:
        """Say in a few words how many images are in a run and how many count."""
        return f"{counts['made']} images, {counts['validated']} count"

    def cautions(self, run: Run, results: Mapping[str, Any], *, model: str | None = None) -> list[Caution]:
        """List what to know before believing results, which are those of `model` if one is named."""
        return []

    def pages(self, runs: Sequence[Run], labels: Sequence[str], site: Site) -> Sequence[Page]:
        """Make the pages of a report on runs of this protocol, the first one first."""
        found: list[Page] = self.report_pages(self, runs, labels, site).pages()
        return found


class ImageProtocol(Protocol):
    """Makes images one source image at a time; alike in this process and over workers."""

    def run(self, spec: Any, out: Path, *, stage: str | None = None, **options: Any) -> Run:
        if stage is not None:
            raise UsageError(f"--stage: the protocol {self.name} has no stages; leave it out")
        check_folder(out, spec)  # before torch is imported
        from counterfoil.protocols.running import run_images

        return run_images(self, spec, out, **options)

    def open_data(self, spec: Any, given: Given | None) -> ImageSet:
        """Open the run's images alone, as the parts will see them; a driver of workers lists them without building parts."""
        from counterfoil.protocols.workspace import open_data

        return open_data(spec, given)

    def check(self, work: Any) -> None:
        """Try the parts on a few images before anything is written."""

    @abstractmethod
    def outcomes(self, work: Any, sources: Iterable[Source | None]) -> Iterator[Outcome | Future[Outcome]]:
        """The records of every source image, in any order, some perhaps still in the making.

        None among the sources says that there are no more for the moment.
        """


class StagedProtocol(Protocol):
    """Goes from table to table; people may correct tables in between."""

    placed = False

    def run(self, spec: Any, out: Path, **options: Any) -> Run:
        check_folder(out, spec)
        from counterfoil.protocols.running import run_staged

        return run_staged(self, spec, out, **options)

    @abstractmethod
    def stages(self, work: Any, tables: Tables) -> Sequence[Stage]:
        """The stages, in their order."""

    @abstractmethod
    def outcomes(self, work: Any, tables: Tables, done: Container[str]) -> Iterator[Outcome]:
        """The records of every source image that is not `done`, out of complete tables."""
