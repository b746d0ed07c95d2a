"""A run of the ImageNet-D protocol as columns: one row a picture that can be used."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.errors import BadRun
from counterfoil.core.naming import short_name
from counterfoil.core.spec.imagenet_d import MiningSpec
from counterfoil.metrics.mining import Candidate, Look
from counterfoil.metrics.outcomes import part_name
from counterfoil.store import Run
from counterfoil.store.later import asked_of
from counterfoil.store.stages import open_table

Flags = NDArray[np.bool_]
HUMAN = "human"
UNKNOWN = -1


@dataclass(frozen=True)
class Said:
    """What one model said of every picture."""

    known: Flags  # whether it said anything
    right: Flags
    predicted: NDArray[np.int64]  # in the run's classes; -1 for any other
    confidence: NDArray[np.float64]
    truth: NDArray[np.float64]
    rank: NDArray[np.int64]  # 0 where it was not noted
    words: NDArray[np.object_]  # the class it named, whether of the set or not; "" where that is not known


@dataclass(frozen=True)
class Paintings:
    """The usable pictures of a run, in the order they were made."""

    classes: tuple[str, ...]
    ids: tuple[str, ...]
    label: NDArray[np.int64]
    kind: NDArray[np.object_]
    nuisance: NDArray[np.object_]
    kept: Flags  # by mining; all of them where nothing was mined
    sees: NDArray[np.int8]  # whether the oracle sees the object: 1, 0, or -1 where it leaves that open
    people: NDArray[np.int8]  # whether people accept it: 1, 0, or -1 where nobody has said so
    hashes: tuple[int | None, ...]
    models: Mapping[str, Said]
    turned_away: Mapping[str, int]  # why pictures are not kept, and how many
    skipped: Mapping[str, int]  # why pictures cannot be used, and how many
    object_check: bool = True  # whether the oracle's word on the object counts

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def base(self) -> Flags:
        """The painted pictures that show their object, by the oracle's word or for want of it."""
        flags: Flags = ((self.sees != 0) | (not self.object_check)) & (self.people != 0)
        return flags

    @property
    def final(self) -> Flags:
        """What was kept and, once people have looked at any of it, what they accept."""
        flags: Flags = self.kept & (self.people == 1 if (self.people != UNKNOWN).any() else True)
        return flags

    @property
    def clusters(self) -> NDArray[np.int64]:
        """Pictures of one object and nuisance share a number: they are no more independent than their prompt.

        Those without a nuisance come from no such prompt, and each stands for itself.
        """
        about = zip(self.label, self.kind, self.nuisance, self.ids, strict=True)
        prompts = [f"{label}\0{kind}\0{word}" if word else f"\0{image_id}" for label, kind, word, image_id in about]
        numbers: NDArray[np.int64] = np.unique(prompts, return_inverse=True)[1].astype(np.int64)
        return numbers

    def candidates(self, surrogates: list[str]) -> list[Candidate]:
        """The pictures as mining knows them."""
        found = []
        for at, image_id in enumerate(self.ids):
            looks = {}
            for name in surrogates:
                said = self.models[name]
                if said.known[at]:
                    answer = (float(said.confidence[at]), float(said.truth[at]), int(said.predicted[at]))
                    looks[name] = Look(bool(said.right[at]), *answer)
            accepted = None if self.sees[at] < 0 else bool(self.sees[at])
            place = (int(self.label[at]), str(self.kind[at]), str(self.nuisance[at]))
            found.append(Candidate(image_id, *place, looks, accepted, self.hashes[at]))
        return found


def surrogates_of(run: Run) -> list[str]:
    """Name the models whose mistakes decided what is in the set: of this run, or of the one that made its set.

    A set names them without folders, so that a model of this run is found by its short name.
    """
    own = [part_name(part) for part in run.spec.get("surrogates") or ()]
    tested = [part_name(part) for part in (run.spec.get("model"), *(run.spec.get("models") or ())) if part]
    tested += [each.name for each in asked_of(run.path) if each.role == "model"]
    known = {short_name(name): name for name in reversed(tested)}
    told = [known.get(short_name(name), name) for name in run.provenance.get("set_surrogates") or ()]
    return list(dict.fromkeys([*own, *told]))


def chats_of(run: Run) -> list[str]:
    """The vision-language models that a run asks, which choose between two names where others choose among all."""
    return [part_name(part) for part in run.spec.get("chats") or ()]


def mining_of(run: Run) -> MiningSpec:
    """The rules by which it was."""
    return MiningSpec(**(run.spec.get("mining") or {}))


def read_paintings(run: Run, *, oracle: str | None = None) -> Paintings:
    """Read a run; `oracle` is whose word says that the object is there, by default the run's own.

    People are asked about what was kept alone: on what they have no word on, the run's own oracle has it.
    """
    own = part_name(run.spec.get("oracle"))
    asked = oracle or own
    rows, skipped, turned = [], Counter[str](), Counter[str]()
    for trial in run.trials:
        if not trial.image:
            skipped[trial.reason or trial.ending] += 1
            continue
        rows.append(trial)
        if trial.ending == "rejected":
            turned[trial.reason.partition(":")[0]] += 1
    place = {trial.trial_id: at for at, trial in enumerate(rows)}
    sees, own_sees, people = (np.full(len(rows), UNKNOWN, dtype=np.int8) for _ in range(3))
    answered = set()
    for verdict in run.verdicts():
        answered.add(verdict.oracle)
        at = place.get(verdict.trial_id)
        if at is not None and verdict.keeps_label is not None:
            if verdict.oracle == asked:
                sees[at] = verdict.keeps_label
            if verdict.oracle == own:
                own_sees[at] = verdict.keeps_label
            if _is_human(verdict.oracle):
                people[at] = verdict.keeps_label
    if asked not in {own, *answered}:
        known = ", ".join(sorted(answered)) or "nobody"
        raise BadRun(f"{run.path}: no verdicts by oracle {asked!r}; there are some by {known}")
    if _is_human(asked):
        sees = np.where(sees == UNKNOWN, own_sees, sees)
    table = open_table(run.path / "stages", "embeddings" if run.spec.get("encoder") else "paintings")
    codes = {row.id: row.values.get("hash") for row in table}
    return Paintings(
        classes=tuple(run.classes),
        ids=tuple(trial.image_id for trial in rows),
        label=np.array([trial.label for trial in rows], dtype=np.int64),
        kind=np.array([trial.factor for trial in rows], dtype=object),
        nuisance=np.array([trial.value for trial in rows], dtype=object),
        kept=np.array([trial.ending == "made" for trial in rows], dtype=bool),
        sees=sees,
        people=people,
        hashes=tuple(int(code, 16) if (code := codes.get(trial.image_id)) else None for trial in rows),
        models=_models(run, place),
        turned_away=dict(sorted(turned.items())),
        skipped=dict(sorted(skipped.items())),
        object_check=mining_of(run).object_check,
    )


def _is_human(oracle: str) -> bool:
    return oracle.partition(":")[0] == HUMAN


def _models(run: Run, place: Mapping[str, int]) -> dict[str, Said]:
    found: dict[str, Said] = {}
    for each in run.predictions():
        at = place.get(each.trial_id)
        if at is None or each.picture != "made":
            continue
        if each.model not in found:
            found[each.model] = _nothing(len(place))
        said = found[each.model]
        said.known[at], said.right[at], said.predicted[at] = True, each.correct, each.predicted
        said.confidence[at], said.truth[at], said.rank[at] = each.confidence, each.truth, each.rank
        said.words[at] = run.classes[each.predicted] if each.predicted >= 0 else each.said
    return found


def _nothing(count: int) -> Said:
    return Said(
        known=np.zeros(count, dtype=bool),
        right=np.zeros(count, dtype=bool),
        predicted=np.full(count, -1, dtype=np.int64),
        confidence=np.zeros(count),
        truth=np.zeros(count),
        rank=np.zeros(count, dtype=np.int64),
        words=np.full(count, "", dtype=object),
    )
