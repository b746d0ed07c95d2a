"""A run of the ImageNet-D protocol, from the prompts to the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from counterfoil.core.records import Prediction, Trial, Verdict
from counterfoil.protocols.class_reader import recorded
from counterfoil.protocols.imagenet_d import stages as steps
from counterfoil.protocols.imagenet_d.asking import ask_all
from counterfoil.protocols.imagenet_d.bench import Bench, assemble
from counterfoil.protocols.imagenet_d.results import results
from counterfoil.protocols.staged import StagedProtocol
from counterfoil.store import Writer
from counterfoil.store.stages import Row, Stages, Table, image_of


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
    classes, unread_is_wrong = bench.names, bench.spec.questions.unread == "wrong"
    for row in tables.paintings:
        if row.id in writer.done:
            continue
        trial = _trial(bench, row, tables.mined)
        said = list(_predictions(trial, looks, answers, classes=classes, unread_is_wrong=unread_is_wrong))
        writer.add([trial], said, list(_verdicts(bench, trial, objects)))


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
        image=image_of(row["image"]) if row.goes_on else "",
        source=row.id if bench.data is not None else "",
        reason=reason,
        factor=row["kind"],
        value=row["nuisance"],
        prompt=row.values.get("prompt", ""),
    )


def _predictions(
    trial: Trial, looks: Mapping[str, Table], answers: Mapping[str, Table], *, classes: list[str], unread_is_wrong: bool
) -> Iterator[Prediction]:
    for name, table in looks.items():
        said = table.one(trial.image_id)
        if said is not None and said.goes_on:
            yield recorded(trial.trial_id, "made", name, said.values)
    for name, table in answers.items():
        said = table.one(trial.image_id)
        if said is not None and said.goes_on and (said["right"] is not None or unread_is_wrong):
            right = bool(said["right"])
            named = -1 if said["right"] is None else classes.index(said["truth" if right else "wrong"])
            yield Prediction(trial.trial_id, "made", name, named, right, 1.0, float(right))


def _verdicts(bench: Bench, trial: Trial, objects: Table | None) -> Iterator[Verdict]:
    said = objects.one(trial.image_id) if objects is not None else None
    if said is not None and said.goes_on and bench.spec.oracle is not None:
        yield Verdict(trial.trial_id, "made", bench.spec.oracle.name, said["sees"], said["score"], said["seen"])


run = StagedProtocol(assemble=assemble, stages=steps.names, make=make, write=_write, results=results).run
