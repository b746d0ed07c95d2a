"""The FMR protocol (foundation-model-oriented robustness, Zhang, Liu, Li, Xie, Kim and Wang).

Climb the tested model's loss in a generator's space while the oracle still sees the class; compare the accuracy that is
left with the accuracy on the clean images.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

from counterfoil import store
from counterfoil.core.errors import BadImage
from counterfoil.core.spec import FmrSpec
from counterfoil.engine.scheduler import Engine
from counterfoil.parts.contracts import Dataset, Sample
from counterfoil.protocols import provenance, speed, strict
from counterfoil.protocols.assembly import Assembly, Given, assemble
from counterfoil.protocols.fmr import preflight
from counterfoil.protocols.fmr.climbed import Outcome, record, skipped
from counterfoil.protocols.fmr.results import fmr_results
from counterfoil.protocols.pipeline import in_background
from counterfoil.protocols.ray.execution import LOCAL, Execution
from counterfoil.store import Run, Writer, layout


@dataclass(frozen=True)
class Progress:
    """How far a run is."""

    done: int
    total: int
    validated: int
    skipped: int

    def more(self, *, validated: bool, skipped: bool) -> Progress:
        """One image further."""
        return replace(self, done=self.done + 1, validated=self.validated + validated, skipped=self.skipped + skipped)


LISTED = 512  # images that are looked up at a time; of more, the garbage collector would go through all again and again
Watch = Callable[[Progress], None]
Tell = Callable[[str], None]


def run(
    spec: FmrSpec,
    out: Path,
    *,
    given: Given | None = None,
    execution: Execution = LOCAL,
    watch: Watch = lambda progress: None,
    tell: Tell = lambda line: None,
) -> Run:
    """Run `spec` into the directory `out`, or go on with it where it was interrupted.

    `watch` hears of every image, `tell` gets lines for people: pictures that were skipped, work that had to be redone.
    """
    if execution.executor == "ray":
        from counterfoil.protocols.ray import fmr as spread

        spread.run(spec, out, given=given, execution=execution, watch=watch, tell=tell)
    else:
        with execution.computing():
            _run_here(spec, out, given=given, watch=watch, tell=tell)
    return store.open_run(out)


def _run_here(spec: FmrSpec, out: Path, *, given: Given | None, watch: Watch, tell: Tell) -> None:
    assembly = assemble(spec, given)
    preflight.check(assembly)
    engine = assembly.fitted_engine()
    with store.write(
        out,
        spec=spec.model_dump(mode="json"),
        classes=assembly.dataset.classes,
        provenance=provenance.gather(assembly, engine),
        **layout(len(assembly.dataset), at_least=spec.engine.chunk_images),
    ) as writer:
        for note in writer.notes:
            tell(note)
        _make(assembly, engine, writer, watch, tell)
        finish(spec, writer)
        speed.record(assembly.model, spec.model.name, out, size=assembly.size, device=spec.device)


def begun(spec: FmrSpec, writer: Writer, dataset: Dataset) -> Progress:
    """How far a run is when it is opened."""
    strict.insist(spec, writer.path, left_out=writer.counts["skipped"])
    return Progress(writer.counts["images"], len(dataset), writer.counts["accepted"], writer.counts["skipped"])


def left(writer: Writer, dataset: Dataset) -> Iterator[Sample]:
    """The images that are not in the store yet."""
    samples = iter(dataset)
    while some := list(islice(samples, LISTED)):
        for place in writer.done.missing([sample.image_id for sample in some]):
            yield some[place]


def finish(spec: FmrSpec, writer: Writer) -> None:
    """Commit what is left and work out the numbers."""
    writer.close()
    writer.finish(fmr_results(store.open_run(writer.path), seed=spec.seed))


def _make(assembly: Assembly, engine: Engine, writer: Writer, watch: Watch, tell: Tell) -> None:
    """Every image that is not in the store yet, through the engine and into it."""
    progress = begun(assembly.spec, writer, assembly.dataset)
    watch(progress)
    sources: dict[str, str] = {}  # of the images under way

    def write_down(outcome: Outcome) -> None:
        nonlocal progress
        outcome.put(writer)
        if outcome.note:
            tell(outcome.note)
        progress = progress.more(validated=outcome.validated, skipped=bool(outcome.note))
        watch(progress)

    def noted() -> Iterator[Sample]:
        for sample in left(writer, assembly.dataset):
            sources[sample.image_id] = sample.source
            yield sample

    def skip(sample: Sample, problem: BadImage) -> None:
        del sources[sample.image_id]
        write_down(skipped(assembly.spec, sample, problem))

    on_gpu = assembly.spec.device.startswith("cuda")  # a processor has nothing to wait for
    with in_background(partial(record, assembly), write_down, waits=on_gpu) as recorded:
        for finished in engine.run(assembly.jobs(noted(), skip)):
            recorded(finished, sources.pop(finished.job.image_id))
