"""Which pictures of a run make up the set, and what is said of each."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil.core.errors import UsageError
from counterfoil.core.records import Trial
from counterfoil.metrics.outcomes import part_name
from counterfoil.store import Run
from counterfoil.store.pictures import PictureFile

HUMAN = "human"
CONTROLS = ("random", "source")  # arms whose pictures are not the test's
COLUMNS = (
    "file_name", "label", "class", "kind", "nuisance", "prompt", "caption", "seed", "trial", "source", "sha256",
    "oracle", "people",
)  # fmt: skip


@dataclass(frozen=True)
class Picture:
    """One picture of the set."""

    trial: Trial
    path: PictureFile  # in the run
    file_name: str  # in the set: the class's folder and a name of its own
    class_name: str
    oracle: str  # yes, no, or empty where the run's oracle leaves it open
    people: str  # the same for people

    def row(self) -> dict[str, Any]:
        """What the set's table says of it."""
        trial = self.trial
        kind = trial.factor or trial.arm
        digest = hashlib.sha256(self.path.read_bytes()).hexdigest()
        values = (self.file_name, trial.label, self.class_name, kind, trial.value, trial.prompt, trial.caption, trial.seed,
                  trial.trial_id, trial.source, digest, self.oracle, self.people)  # fmt: skip
        return dict(zip(COLUMNS, values, strict=True))


def chosen(run: Run) -> list[Picture]:
    """The pictures that were made, kept and accepted: by people once they have looked at any, else by the run's oracle.

    Of a run whose oracle is people, nothing is accepted before they have looked.
    """
    own = part_name(run.spec.get("oracle"))
    said: dict[str, bool | None] = {}
    people: dict[str, bool] = {}
    for verdict in run.verdicts():
        if verdict.picture != "made":
            continue
        if verdict.oracle.partition(":")[0] == HUMAN and verdict.keeps_label is not None:
            people[verdict.trial_id] = verdict.keeps_label
        elif verdict.oracle == own:
            said[verdict.trial_id] = verdict.keeps_label if verdict.keeps_label is not None else said.get(verdict.trial_id)
    needs_people = bool(people) or own.partition(":")[0] == HUMAN
    asks = bool(own) and (run.spec.get("mining") or {}).get("object_check", True)  # whether the oracle's word was to count
    folders = folders_of(run.classes)
    found, left = [], Counter[str]()
    for trial in run.trials:
        if not trial.image or not trial.validated or trial.arm in CONTROLS:
            continue
        accepted = people.get(trial.trial_id) if needs_people else (said.get(trial.trial_id) if asks else True)
        if not accepted:
            left["rejected" if accepted is False else "undecided"] += 1
            continue
        name = f"{folders[trial.label]}/{_file_name(trial)}"
        words = (_word(said.get(trial.trial_id)), _word(people.get(trial.trial_id)))
        found.append(Picture(trial, run.picture(trial), name, run.classes[trial.label], *words))
    if not found:
        why = ", ".join(f"{times} {name}" for name, times in sorted(left.items())) or "nothing was kept"
        who = "people" if needs_people else f"oracle {own or 'none'}"
        raise UsageError(f"{run.path}: no picture to export by the word of {who} ({why}); run it on, or have it reviewed")
    missing = next((each for each in found if not each.path.is_file()), None)
    if missing is not None:
        raise UsageError(f"{missing.path}: is missing; repeat the run's command to make it again")
    return found


def folders_of(classes: Sequence[str]) -> list[str]:
    """A folder for each class, all unlike, in letters that every file system takes."""
    plain = [re.sub(r"[^\w .()'+-]+", "_", name).strip(" .") or "class" for name in classes]
    times = Counter(name.casefold() for name in plain)
    return [f"{name} {at}" if times[name.casefold()] > 1 else name for at, name in enumerate(plain)]


def rows(pictures: Sequence[Picture]) -> Iterator[dict[str, Any]]:
    """The set's table, one row at a time: pictures are hashed as they come."""
    return (picture.row() for picture in pictures)


def _file_name(trial: Trial) -> str:
    words = re.sub(r"[^A-Za-z0-9]+", "-", f"{trial.factor or trial.arm} {trial.value}").strip("-").lower()[:60]
    return f"{words}-{hashlib.sha256(trial.trial_id.encode()).hexdigest()[:10]}.png"


def _word(said: bool | None) -> str:
    return "" if said is None else "yes" if said else "no"
