"""People's verdicts in the place of the oracle's: what FMR is by their word, and how often they and the oracle agree.

The study writes `questions.csv`, one row for each picture people should look at. Filled in and handed back with
`--set answers=FILE`, it is read by the oracle `human:`; what nobody has answered yet counts as pending. On the lab a stand-in
answers, and the notes say so: another classifier, not a person.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

import torch

from counterfoil.core.errors import UsageError
from counterfoil.core.spec import PartSpec
from counterfoil.metrics.columns import NO, OPEN, YES
from counterfoil.metrics.estimate import Estimate, estimate
from counterfoil.metrics.fmr import scores
from counterfoil.metrics.outcomes import Outcomes, read_outcomes
from counterfoil.metrics.statistic import Share
from counterfoil.parts import images, registry
from counterfoil.parts.contracts import to_device
from counterfoil.store import Run
from counterfoil.store.pictures import PictureFile
from counterfoil.studies.bench import Bench
from counterfoil.studies.contract import Study
from counterfoil.studies.findings import Findings, Row, Table

Question = tuple[str, str, PictureFile, int]
"""The picture's hash, the class asked about, where the picture is, and the class's number."""

_SHOWN = ("SA", "PA", "FMR", "FMR_matched", "VR")


def run(bench: Bench) -> Findings:
    """Numbers by the oracle's word and by people's."""
    model, own = bench.models[0], bench.settings.oracle
    made = bench.run(model)
    asked = questions(made)
    sheet = bench.folder / "human-oracle" / f"{made.path.name}-questions.csv"
    if not sheet.exists():  # people may have filled it in since
        _write(sheet, [(*each[:2], "", file.as_posix()) for each, file in zip(asked, _to_look_at(asked, sheet), strict=True)])
    answers, note = _answers(bench, made, asked)
    if answers is None:
        return Findings(
            (),
            (),
            (
                f"{len(asked)} questions are in {sheet}; fill in the column `answer` with yes or no, then give",
                f"  --set answers={sheet}",
            ),
        )
    by_oracle = read_outcomes(made)
    by_people = bench.judged(made, PartSpec(name=f"human:{answers}"), again=True)
    seed = bench.settings.seed
    rows = []
    for name, outcomes in ((own.name, by_oracle), ("people", by_people)):
        values = scores(outcomes, seed=seed)
        rows.append(Row((name,), {each: values[each] for each in _SHOWN}))
    agree = Table(
        "How far they agree on made pictures",
        ("share",),
        tuple(Row((name,), {"%": each}) for name, each in agreement(by_oracle, by_people, seed=seed).items()),
    )
    pending = by_people.pending
    notes = [note] if note else []
    if pending:
        notes.append(f"{pending} of {len(by_people)} pictures have no answer yet, or a tie, and count as pending.")
    return Findings((Table(f"{model.name} by whose word", ("verdicts of",), tuple(rows)), agree), (), tuple(notes))


def questions(run: Run) -> list[Question]:
    """Every made picture of a run's search, with the class that it should show."""
    return [
        (images.digest(images.read(run.picture(trial))), run.classes[trial.label], run.picture(trial), trial.label)
        for trial in run.trials
        if trial.image and trial.arm == "guided"
    ]


def agreement(oracle: Outcomes, people: Outcomes, *, seed: int = 0) -> dict[str, Estimate]:
    """Of the pictures that the oracle accepted and people have judged: how many people accept too."""
    answered = (oracle.validated == YES) & (people.validated != OPEN) & (people.validated >= NO)
    columns = {"all": oracle.validated == YES, "answered": answered, "kept": answered & (people.validated == YES)}
    statistics = {
        "answered, of those the oracle accepted": Share("answered", "all", "the oracle accepted none"),
        "accepted by people, of those answered": Share("kept", "answered", "nobody has answered yet"),
    }
    return estimate(columns, statistics, seed=seed)


def _to_look_at(asked: list[Question], sheet: Path) -> Iterator[Path]:
    """The pictures as files beside the sheet: a run may keep them in packs, which people cannot open."""
    folder = sheet.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    for _, _, picture, _ in asked:
        file = folder / picture.name
        if not file.is_file():
            file.write_bytes(picture.read_bytes())
        yield file


def _answers(bench: Bench, run: Run, asked: list[Question]) -> tuple[Path | None, str]:
    given, stand_in = str(bench.options["answers"]), str(bench.options["stand_in"])
    if given:
        path = Path(given).expanduser()
        if not path.is_file():
            raise UsageError(f"human-oracle: no file {given!r}; answers are a CSV file with the columns picture, label, answer")
        return path.resolve(), ""
    if not stand_in or not bench.settings.on_the_lab:
        return None, ""
    path = bench.folder / "human-oracle" / f"{run.path.name}-stand-in.csv"
    _write(path, [(*each[:2], answer, "") for each, answer in zip(asked, _by_stand_in(bench, run, asked, stand_in), strict=True)])
    return path.resolve(), f"No person answered: {stand_in} stands in, so that the lab can run the study by itself."


def _by_stand_in(bench: Bench, run: Run, asked: list[Question], name: str) -> list[str]:
    oracle = to_device(registry.create("oracle", name), bench.settings.device).bind(run.classes)
    said = []
    for _, _, path, label in asked:
        picture = images.read(path)[None].to(bench.settings.device)
        said.append(
            "yes" if int(oracle.judge(picture, torch.tensor([label], device=picture.device)).keeps_label[0]) == 1 else "no"
        )
    return said


def _write(path: Path, rows: list[tuple[str, str, str, str]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("picture", "label", "answer", "file"))
        writer.writerows(rows)
    partial.replace(path)


STUDY = Study(
    name="human-oracle",
    published='section 3.3: "in settings where the foundation model is human labors"; the paper gives no numbers',
    run=run,
    models=("lab:narrow",),
    options={"answers": "", "stand_in": "classifier:lab:diverse"},
)
