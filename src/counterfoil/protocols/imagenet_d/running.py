"""A run of the ImageNet-D protocol, from the prompts to the numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from counterfoil import store
from counterfoil.assembly import Given
from counterfoil.executors.execution import LOCAL, Execution
from counterfoil.executors.spreading import here, spreading
from counterfoil.metrics.imagenet_d import results
from counterfoil.protocols.imagenet_d import stages as steps
from counterfoil.protocols.imagenet_d.asking import ask_all
from counterfoil.protocols.imagenet_d.bench import Bench, assemble
from counterfoil.records import Prediction, Trial, Verdict
from counterfoil.spec import ImagenetDSpec
from counterfoil.stages import Progress, Row, StageReached, Stages, Table
from counterfoil.store import Run, Writer

Watch = Callable[[Progress], None]
Tell = Callable[[str], None]


def run(
    spec: ImagenetDSpec,
    out: Path,
    *,
    given: Given | None = None,
    watch: Watch = lambda progress: None,
    tell: Tell = lambda line: None,
    stage: str | None = None,
    execution: Execution = LOCAL,
) -> Run:
    """Run `spec` into the directory `out`, or go on with it where it was interrupted; with `stage`, only as far as that one."""
    bench = assemble(here(spec, execution), given)
    with (
        spreading(spec, out, given=given, execution=execution, tell=tell) as others,
        store.write(
            out,
            spec=spec.model_dump(mode="json"),
            classes=list(bench.classes),
            provenance=others.provenance or bench.provenance(),
            part_images=spec.engine.part_images,
        ) as writer,
    ):
        for note in writer.notes:
            tell(note)
        engine = spec.engine
        staged = Stages(
            out, batch=engine.batch, workers=engine.workers, until=stage, spread=others.spread, watch=watch, tell=tell
        )
        try:
            _write(bench, staged, make(bench, staged), writer)
        except StageReached:
            return store.open_run(out)
        writer.finish(results(store.open_run(out), spec.seed))
    return store.open_run(out)


@dataclass(frozen=True)
class Tables:
    """What the stages left behind."""

    paintings: Table
    looks: Mapping[str, Table]
    objects: Table | None
    mined: Table | None
    answers: Mapping[str, Table]


def make(bench: Bench, staged: Stages) -> Tables:
    """All stages, one after the other."""
    if bench.painter is not None:
        paintings = steps.paint_all(bench, staged, steps.plan(bench, staged))
    else:
        paintings = steps.take_all(bench, staged)
    looks = steps.look_at_all(bench, staged, paintings)
    objects = steps.judge_all(bench, staged, paintings)
    mined = None
    if bench.painter is not None:
        mined = steps.mine(bench, staged, paintings, looks, objects, steps.embed_all(bench, staged, paintings))
    answers = ask_all(bench, staged, mined or paintings, looks)
    return Tables(paintings, looks, objects, mined, answers)


def _write(bench: Bench, staged: Stages, tables: Tables, writer: Writer) -> None:
    """The records that metrics and reports read."""
    looks, answers, objects = tables.looks, tables.answers, tables.objects
    writer.begin(staged.mark())
    for row in tables.paintings:
        if row.id in writer.done:
            continue
        trial = _trial(bench, row, tables.mined)
        picture = staged.blobs.read(row["image"]) if row.goes_on else None
        pictures = {trial.trial_id: picture} if picture is not None else {}
        said = list(_predictions(trial, looks, answers, unread_is_wrong=bench.spec.questions.unread == "wrong"))
        writer.add([trial], said, list(_verdicts(bench, trial, objects)), pictures)
    writer.commit()


def _trial(bench: Bench, row: Row, mined: Table | None) -> Trial:
    """A picture that was kept is `made`, one that mining turned away `rejected`, and one that cannot be used `skipped`."""
    kept = mined.one(row.id) if mined is not None and row.goes_on else None
    if not row.goes_on:
        ending, reason = "skipped", row.reason
    elif kept is not None and not kept.goes_on:
        ending, reason = "rejected", f"{kept.check}: {kept.reason}"
    else:
        ending, reason = "made", ""
    return Trial(
        image_id=row.id,
        arm="painted",
        label=row["label"],
        seed=int(row.values.get("seed", 0)),
        ending=ending,  # type: ignore[arg-type]
        steps=0,
        queries=0,
        source=row.id if bench.data is not None else "",
        reason=reason,
        factor=row["kind"],
        value=row["nuisance"],
        prompt=row.values.get("prompt", ""),
    )


def _predictions(
    trial: Trial, looks: Mapping[str, Table], answers: Mapping[str, Table], *, unread_is_wrong: bool
) -> Iterator[Prediction]:
    for name, table in looks.items():
        said = table.one(trial.image_id)
        if said is not None and said.goes_on:
            numbers = (said["confidence"], said["truth"], said["rank"])
            yield Prediction(trial.trial_id, "made", name, said["predicted"], said["correct"], *numbers)
    for name, table in answers.items():
        said = table.one(trial.image_id)
        if said is not None and said.goes_on and (said["right"] is not None or unread_is_wrong):
            right = bool(said["right"])
            # The wrong choice was one class among many; which one stands in the table of answers.
            yield Prediction(trial.trial_id, "made", name, trial.label if right else -1, right, 1.0, float(right), int(right))


def _verdicts(bench: Bench, trial: Trial, objects: Table | None) -> Iterator[Verdict]:
    said = objects.one(trial.image_id) if objects is not None else None
    if said is not None and said.goes_on and bench.spec.oracle is not None:
        yield Verdict(trial.trial_id, "made", bench.spec.oracle.name, said["sees"], said["score"], said["seen"])
