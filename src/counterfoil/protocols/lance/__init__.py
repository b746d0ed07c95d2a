"""The LANCE protocol (language-guided counterfactual images, Prabhu, Yenamandra, Chattopadhyay and Hoffman).

Caption each picture, rewrite one factor of the caption, edit the picture to match, keep what passes quality control and
what an oracle says still shows the class, and ask models about it. Every step is a stage that resumes by itself; captions
and edits are files that people may correct between stages.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from counterfoil import store
from counterfoil.assembly import Given
from counterfoil.errors import BadSpec
from counterfoil.executors.execution import LOCAL, Execution
from counterfoil.executors.spreading import here, spreading
from counterfoil.metrics.lance import lance_results
from counterfoil.protocols.lance import answers, captions, edits, pictures, realism, sources, trials
from counterfoil.protocols.lance.bench import Bench, assemble
from counterfoil.spec import LanceSpec
from counterfoil.stages import Progress, StageReached, Stages
from counterfoil.store import Run

STAGES = ("sources", "captions", "edits", "directions", "inversions", "pictures", "quality", "oracle", "predictions", "set")
"""The stages in their order; a run can stop after any of them."""


def run(
    spec: LanceSpec,
    out: Path,
    *,
    given: Given | None = None,
    stage: str | None = None,
    execution: Execution = LOCAL,
    watch: Callable[[Progress], None] = lambda progress: None,
    tell: Callable[[str], None] = lambda line: None,
) -> Run:
    """Run `spec` into the directory `out`, or go on with it; with `stage`, stop after that one."""
    if stage is not None and stage not in STAGES:
        raise BadSpec(f"no stage named {stage!r}; stages are {', '.join(STAGES)}")
    bench = assemble(here(spec, execution), given)
    with (
        spreading(spec, out, given=given, execution=execution, tell=tell) as others,
        store.write(
            out,
            spec=spec.model_dump(mode="json"),
            classes=bench.dataset.classes,
            provenance=others.provenance or bench.provenance(),
            part_images=spec.engine.part_images,
        ) as writer,
    ):
        for note in writer.notes:
            tell(note)
        engine = spec.engine
        stages = Stages(
            out, batch=engine.batch, workers=engine.workers, until=stage, spread=others.spread, watch=watch, tell=tell
        )
        try:
            made = make(bench, stages)
        except StageReached:
            tell(f"stopped after the stage {stage!r}; the same command without --stage goes on")
            return store.open_run(out)
        writer.begin(stages.mark())
        trials.write(bench, stages, made, writer)
        writer.commit()
        writer.finish(lance_results(store.open_run(out), seed=spec.seed))
    return store.open_run(out)


def make(bench: Bench, stages: Stages) -> trials.Tables:
    """All stages, one after the other."""
    source = sources.read(bench, stages)
    caption = captions.caption(bench, stages, source)
    edit = edits.rewrite(bench, stages, caption)
    edits.directions(bench, stages, edit)
    inversion = pictures.invert(bench, stages, edit)
    edited = pictures.edit(bench, stages, edit, inversion)
    quality = pictures.control(bench, stages, edited)
    shown = answers.Shown(source, edited, quality)
    verdicts = answers.judge(bench, stages, shown)
    predictions = answers.predict(bench, stages, shown)
    tables = trials.Tables(source, caption, edit, inversion, edited, quality, verdicts, predictions)
    realism.describe(bench, stages, tables)
    return tables
