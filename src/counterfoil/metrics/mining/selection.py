"""The rules by which pictures are kept, in the order in which they are applied."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from counterfoil.core.errors import BadSpec
from counterfoil.core.lots import lot
from counterfoil.core.spec.imagenet_d import MiningSpec
from counterfoil.metrics.mining.candidates import Candidate, Look
from counterfoil.metrics.mining.duplicates import distance

KEPT = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """Whether a picture is kept; if not, which check turned it away, and why."""

    check: str = KEPT
    reason: str = ""

    @property
    def kept(self) -> bool:
        """Whether no check turned it away."""
        return self.check == KEPT


def select(
    candidates: Iterable[Candidate], settings: MiningSpec, *, surrogates: Sequence[str], seed: int = 0
) -> dict[str, Decision]:
    """What becomes of each candidate when these surrogates decide.

    Without surrogates every picture counts as hard, so that what is left are the other checks alone. Which of several alike,
    and which of too many, is drawn by the seed and the picture's id, never by how hard it is.
    """
    decided: dict[str, Decision] = {}
    left: list[Candidate] = []
    for candidate in candidates:
        decision = _hard(candidate, settings, surrogates)
        if decision.kept and settings.object_check and candidate.accepted is False:
            decision = Decision("object", "the oracle does not see the object in it")
        decided[candidate.image_id] = decision
        if decision.kept:
            left.append(candidate)
    left.sort(key=lambda each: lot(seed, each.image_id))
    for candidate, decision in _without_likes(left, settings.duplicates):
        decided[candidate.image_id] = decision
    left = [each for each in left if decided[each.image_id].kept]
    for candidate, decision in _within_quotas(left, settings):
        decided[candidate.image_id] = decision
    return decided


def counts_as_miss(look: Look, settings: MiningSpec) -> bool:
    """Whether a surrogate's answer is a miss that counts."""
    return not look.right and look.confidence >= settings.confidence and look.truth <= settings.truth


def _hard(candidate: Candidate, settings: MiningSpec, surrogates: Sequence[str]) -> Decision:
    unknown = [name for name in surrogates if name not in candidate.looks]
    if unknown:
        raise BadSpec(f"mining: surrogate {unknown[0]} has no answer for {candidate.image_id}; run it on all painted pictures")
    misses = sum(counts_as_miss(candidate.looks[name], settings) for name in surrogates)
    needed = len(surrogates) if settings.misses == "all" else min(settings.misses, len(surrogates))
    if misses < needed:
        return Decision("not hard", f"missed by {misses} of {len(surrogates)} surrogates, {needed} are needed")
    return Decision()


def _without_likes(candidates: list[Candidate], bits: int | None) -> Iterable[tuple[Candidate, Decision]]:
    """Of pictures of one object that look alike, only the first is kept."""
    if bits is None:
        return
    kept: dict[int, list[tuple[int, str]]] = defaultdict(list)
    for candidate in candidates:
        if candidate.picture_hash is None:
            continue
        same = kept[candidate.label]
        like = next((name for other, name in same if distance(other, candidate.picture_hash) <= bits), None)
        if like is None:
            same.append((candidate.picture_hash, candidate.image_id))
        else:
            yield candidate, Decision("duplicate", f"looks like {like}")


def _within_quotas(candidates: list[Candidate], settings: MiningSpec) -> Iterable[tuple[Candidate, Decision]]:
    """No more of an object, nor of an object and a kind of nuisance, than asked for.

    Kinds take turns, so that a full quota for the object is shared between them as evenly as there are pictures.
    """
    if settings.per_class is None and settings.per_nuisance is None:
        return
    turn: Counter[tuple[int, str]] = Counter()
    ordered: list[tuple[int, int, Candidate]] = []
    for candidate in candidates:
        ordered.append((turn[candidate.label, candidate.kind], len(ordered), candidate))
        turn[candidate.label, candidate.kind] += 1
    of_class: Counter[int] = Counter()
    for place, _, candidate in sorted(ordered, key=lambda each: each[:2]):
        if settings.per_nuisance is not None and place >= settings.per_nuisance:
            yield candidate, Decision("quota", f"{settings.per_nuisance} of this object and {candidate.kind} are kept already")
        elif settings.per_class is not None and of_class[candidate.label] >= settings.per_class:
            yield candidate, Decision("quota", f"{settings.per_class} of this object are kept already")
        else:
            of_class[candidate.label] += 1
