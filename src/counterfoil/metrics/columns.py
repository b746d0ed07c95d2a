"""Single passes over a run's tables that leave compact columns, a few dozen bytes an image."""

from __future__ import annotations

from array import array
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from counterfoil.store import Run
from counterfoil.store.files import key_of

Keys = NDArray[np.uint64]
Said = NDArray[np.int8]

YES, NO, OPEN, ABSENT = 1, 0, -1, -2
"""An answer, an oracle that abstains so far, or no record at all."""

ARMS: tuple[str, ...] = ("guided", "random")
"""The arms of a search; what other protocols make has measures of its own."""


@dataclass
class ArmTrials:
    """Columns of one arm's readable trials, in the order they were read."""

    keys: Keys
    label: NDArray[np.int64]
    made: Said
    steps: NDArray[np.int64]
    path: Said  # (trials, budget + 1)

    def aligned(self, column: NDArray[Any], keys: Keys) -> NDArray[Any]:
        """The column brought into the order of `keys`, ABSENT where this arm has no trial."""
        places, found = _places(self.keys, keys)
        ordered = np.full((len(keys), *column.shape[1:]), ABSENT, dtype=column.dtype)
        ordered[places] = column[found]
        return ordered


@dataclass
class Trials:
    """The trials by arm, how they ended, and how many images could not be read."""

    arms: dict[str, ArmTrials]
    endings: dict[str, Counter[str]]
    skipped: int


def read_trials(run: Run) -> Trials:
    """One pass over the trials; one more, over the paths alone, says how wide these are."""
    width = _path_width(run)
    endings = {arm: Counter[str]() for arm in ARMS}
    numbers = {arm: {"keys": array("Q"), "label": array("q"), "made": array("b"), "steps": array("q")} for arm in ARMS}
    paths = {arm: bytearray() for arm in ARMS}
    skipped = 0
    wanted = ["image_id", "arm", "label", "ending", "steps", "path_predicted"]
    for batch in run.table("trials", columns=wanted):
        for image_id, arm, label, ending, steps, path in zip(*(batch.column(name).to_pylist() for name in wanted), strict=True):
            if arm not in ARMS:
                continue
            endings[arm][ending] += 1
            if ending == "skipped":
                skipped += arm == "guided"
                continue
            row = {"keys": key_of(image_id), "label": label, "made": ending != "unvalidated", "steps": steps}
            for name, value in row.items():
                numbers[arm][name].append(value)
            right = bytes(predicted == label for predicted in path) or bytes([ABSENT % 256])
            paths[arm] += right.ljust(width, right[-1:])
    arms = {
        arm: ArmTrials(
            **{name: np.array(column) for name, column in numbers[arm].items()},
            path=np.frombuffer(paths[arm], dtype=np.int8).reshape(-1, width),
        )
        for arm in ARMS
    }
    return Trials(arms, endings, skipped)


def ended_by_oracle(run: Run, keys: Keys) -> NDArray[np.bool_]:
    """Whether the oracle's rejection of a step ended the guided climb of each image, in the order of `keys`."""
    ended = np.zeros(len(keys), dtype=bool)
    for batch in run.table("trials", columns=["image_id", "arm", "ending"]):
        rows = batch.filter(pc.and_(pc.equal(batch.column(1), "guided"), pc.equal(batch.column(2), "oracle")))
        some = np.array([key_of(image_id) for image_id in rows.column(0).to_pylist()], dtype=np.uint64)
        ended[_places(some, keys)[0]] = True
    return ended


def _path_width(run: Run) -> int:
    """Steps that a path can have, and one for the reconstruction."""
    width = int(run.spec.get("search", {}).get("budget", 0)) + 1
    for batch in run.table("trials", columns=["path_predicted"]):
        width = max(width, pc.max(pc.list_value_length(batch.column(0))).as_py() or 0)
    return width


@dataclass
class Saying:
    """What one model or oracle said of each image's pictures, in the order of the keys it was read for."""

    of: dict[str, Said]  # by "clean", "reconstruction", "made guided", "made random"
    rows: int = 0

    def take(self, batch: pa.RecordBatch, keys: Keys) -> None:
        """Enter a batch of trial ids, pictures, names and answers."""
        self.rows += batch.num_rows
        trial_ids, pictures = batch.column(0).to_pylist(), batch.column(1).to_pylist()
        said = np.array(pc.fill_null(batch.column(3).cast(pa.int8()), OPEN), dtype=np.int8)
        image_ids, _, arms = zip(*(trial_id.rpartition("#") for trial_id in trial_ids), strict=True) if trial_ids else ((),) * 3
        # The source image and its reconstruction are the same for both arms, what was made is not.
        slots = [f"made {arm}" if picture == "made" else picture for arm, picture in zip(arms, pictures, strict=True)]
        places, found = _places(np.array([key_of(image_id) for image_id in image_ids], dtype=np.uint64), keys)
        slot_of, said = np.array(slots, dtype=str)[found], said[found]
        for slot, column in self.of.items():
            open_ones = places[(slot_of == slot) & (said == OPEN)]
            column[open_ones] = np.where(column[open_ones] == ABSENT, OPEN, column[open_ones])
            answered = (slot_of == slot) & (said != OPEN)
            column[places[answered]] = said[answered]


def read_said(run: Run, table: str, *, who: str, keys: Keys) -> Saying:
    """One pass over predictions or verdicts. A later answer replaces an earlier one; abstaining replaces none."""
    slots = ("clean", "reconstruction", *(f"made {arm}" for arm in ARMS))
    saying = Saying({slot: np.full(len(keys), ABSENT, dtype=np.int8) for slot in slots})
    name, answer = ("model", "correct") if table == "predictions" else ("oracle", "keeps_label")
    for batch in run.table(table, columns=["trial_id", "picture", name, answer]):
        saying.take(batch.filter(pc.equal(batch.column(2), who)), keys)
    return saying


def _places(some: Keys, keys: Keys) -> tuple[NDArray[Any], NDArray[Any]]:
    """Where in the sorted `keys` those of `some` are that occur there, and which of `some` they are."""
    places = np.searchsorted(keys, some)
    found = np.flatnonzero(np.take(keys, places, mode="clip") == some) if len(keys) else np.zeros(0, dtype=np.intp)
    return places[found], found
