"""Results of an ImageNet-D run: every model that looked at its set, with those marked whose mistakes chose it."""

from __future__ import annotations

import numpy as np

from counterfoil.metrics.answers import ABSENT
from counterfoil.metrics.imagenet_d import ModelAnswers, Paintings, read_paintings, surrogates_of
from counterfoil.report.board.answers import letters, numbers_of
from counterfoil.report.board.entry import Answers, Entry, Model
from counterfoil.report.board.runs import taken
from counterfoil.report.making import command, repeatable
from counterfoil.store import Run
from counterfoil.store.files import key_of


def painted_entries(run: Run) -> list[Entry]:
    """One result a model; vision-language models, which were asked another question, are left out."""
    paintings = read_paintings(run)
    chats = {str(part.get("name")) for part in run.spec.get("chats") or ()}
    surrogates = surrogates_of(run)
    seed = int(run.spec.get("seed", 0))
    pixels = {trial.image_id: trial.image_sha256 for trial in run.trials if trial.image}
    test = taken(run, surrogates=surrogates)
    found = []
    for name, said in paintings.models.items():
        if name in chats:
            continue
        answers = _answers(paintings, said, pixels)
        found.append(
            Entry(
                protocol="imagenet-d",
                model=Model(name=name),
                test=test,
                numbers=numbers_of(answers, seed=seed),  # type: ignore[arg-type]
                seed=seed,
                answers=answers,
                command=command(run),
                repeatable=repeatable(run),
                versions={str(key): str(value) for key, value in (run.provenance.get("versions") or {}).items()},
            )
        )
    return found


def _answers(paintings: Paintings, said: ModelAnswers, pixels: dict[str, str]) -> Answers:
    """What one model said of the painted pictures that show their object, and which of them are in the set."""
    rows = np.flatnonzero(paintings.base)
    keys = [f"{key_of(chr(0).join((paintings.ids[at], pixels[paintings.ids[at]]))):016x}" for at in rows]
    order = sorted(range(len(rows)), key=keys.__getitem__)
    rows = rows[order]
    right = np.where(said.known, said.right, ABSENT).astype(np.int8)
    kept = paintings.final
    nothing = "-" * len(rows)
    return Answers(
        images=[keys[at] for at in order],
        clean=letters(right[rows]),
        accepted=letters(kept[rows].astype(np.int8)),
        made=letters(np.where(kept, right, ABSENT)[rows].astype(np.int8)),
        reconstruction=nothing,
        random=nothing,
        clusters=paintings.clusters[rows].tolist(),
    )
