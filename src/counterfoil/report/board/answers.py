"""Answers image by image: packed into a result file, and read back into the form that metrics take."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from counterfoil.metrics.answers import ABSENT, NO, OPEN, YES, Codes
from counterfoil.metrics.estimate import estimate
from counterfoil.metrics.fmr import STATISTICS, Outcomes, columns_of
from counterfoil.report.board.entry import NUMBERS, Answers, Number
from counterfoil.store.files import key_of


def pack(outcomes: Outcomes, pixels: Mapping[int, tuple[str, str]]) -> Answers:
    """The outcomes of a run; `pixels` gives each key's image id and the hash of its pixels."""
    keys = [f"{key_of(chr(0).join(pixels[int(key)])):016x}" for key in outcomes.keys]
    order = np.array(sorted(range(len(keys)), key=keys.__getitem__), dtype=np.intp)
    control = np.where(outcomes.random_validated == YES, outcomes.random_made_correct, ABSENT)
    columns = {
        "clean": outcomes.clean_correct,
        "accepted": outcomes.validated,
        "made": outcomes.made_correct,
        "reconstruction": outcomes.reconstruction_correct,
        "random": control,
    }
    return Answers(images=sorted(keys), **{name: letters(column[order]) for name, column in columns.items()})


def unpack(answers: Answers, *, model: str = "", oracle: str = "") -> Outcomes:
    """The outcomes that a result file tells of. Steps and ways are not among them."""
    count = len(answers.images)
    none, nothing = np.zeros(count, dtype=np.int64), np.zeros((count, 0), dtype=np.int8)
    random = _said(answers.random)
    accepted = _said(answers.accepted)
    return Outcomes(
        model=model,
        oracle=oracle,
        classes=("all",),
        skipped=0,
        endings={},
        keys=np.array([int(key, 16) for key in answers.images], dtype=np.uint64),
        label=none,
        clean_correct=_said(answers.clean),
        reconstruction_correct=_said(answers.reconstruction),
        oracle_clean=np.full(count, ABSENT, dtype=np.int8),
        validated=np.where(accepted == ABSENT, OPEN, accepted).astype(np.int8),
        made_correct=_said(answers.made),
        steps=none,
        path_correct=nothing,
        random_validated=np.where(random == ABSENT, NO, YES).astype(np.int8),
        random_made_correct=random,
        random_steps=none,
        random_path_correct=nothing,
        source=np.array(answers.clusters, dtype=np.int64) if answers.clusters else None,
    )


def numbers_of(answers: Answers, *, seed: int) -> dict[str, Number]:
    """What the answers come to."""
    outcomes = unpack(answers)
    found = estimate(columns_of(outcomes), STATISTICS, seed=seed, clusters=outcomes.source)
    return {name: Number(**found[name].to_dict()) for name in NUMBERS}


def letters(said: NDArray[np.int8]) -> str:
    """A column as a result file has it."""
    return "".join("1" if each == YES else "0" if each == NO else "-" for each in said.tolist())


def _said(letters: str) -> Codes:
    codes = np.frombuffer(letters.encode("ascii"), dtype=np.uint8)
    return np.select([codes == ord("1"), codes == ord("0")], [YES, NO], ABSENT).astype(np.int8)
