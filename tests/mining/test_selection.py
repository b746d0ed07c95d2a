"""Mining rules, each shown on the fewest images that can show it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from counterfoil.core.errors import BadSpec
from counterfoil.core.spec import MiningSpec
from counterfoil.metrics.mining import Candidate, Look, distance, embedding_hash, perceptual_hash, select

NAMES = ("a", "b", "c")


def candidate(name: str, misses: str, **changes: Any) -> Candidate:
    """An image that the surrogates in `misses` get wrong, with full confidence."""
    looks = {each: Look(each not in misses, 0.9, 0.05 if each in misses else 0.9) for each in NAMES}
    return Candidate(**{"image_id": name, "label": 0, "kind": "background", "nuisance": "beach", "looks": looks, **changes})


def select_names(candidates: list[Candidate], surrogates: tuple[str, ...] = NAMES, **settings: Any) -> set[str]:
    return {name for name, decision in select(candidates, MiningSpec(**settings), surrogates=surrogates).items() if decision.kept}


def test_all_or_k_of_n_must_miss() -> None:
    images = [candidate(misses or "none", misses) for misses in ("", "a", "ab", "abc")]
    assert select_names(images) == {"abc"}
    assert select_names(images, misses=2) == {"ab", "abc"}
    assert select_names(images, misses=1) == {"a", "ab", "abc"}
    assert select_names(images, surrogates=("a", "b")) == {"ab", "abc"}
    assert select_names(images, surrogates=("c",), misses=3) == {"abc"}  # three of one is one
    assert len(select_names(images, surrogates=())) == 4


def test_a_miss_without_confidence_does_not_count() -> None:
    unsure = {name: Look(False, 0.3, 0.28) for name in NAMES}
    images = [candidate("sure", "abc"), candidate("unsure", "abc", looks=unsure)]
    assert select_names(images) == {"sure", "unsure"}
    assert select_names(images, confidence=0.5) == {"sure"}
    assert select_names(images, truth=0.1) == {"sure"}


def test_the_oracle_turns_away_but_may_leave_open() -> None:
    images = [candidate(str(word), "abc", accepted=word) for word in (True, False, None)]
    assert select_names(images) == {"True", "None"}
    assert select_names(images, object_check=False) == {"True", "False", "None"}
    assert select(images, MiningSpec(), surrogates=NAMES)["False"].check == "object"


def test_of_images_that_look_alike_one_is_kept() -> None:
    images = [
        candidate("one", "abc", picture_hash=0b1111),
        candidate("two", "abc", picture_hash=0b1110),
        candidate("far", "abc", picture_hash=0xFFFF0000),
        candidate("other object", "abc", picture_hash=0b1111, label=1),
        candidate("easy", "", picture_hash=0b1111),  # what is not kept makes nothing a duplicate
    ]
    assert len(select_names(images) & {"one", "two"}) == 1
    assert {"far", "other object"} <= select_names(images)
    assert {"one", "two"} <= select_names(images, duplicates=0)
    assert {"one", "two"} <= select_names(images, duplicates=None)


def test_quotas_are_shared_between_kinds() -> None:
    images = [
        candidate(f"{label} {kind} {number}", "abc", label=label, kind=kind)
        for label in (0, 1)
        for kind, count in (("background", 20), ("texture", 3))
        for number in range(count)
    ]
    chosen = Counter(name.rsplit(" ", 1)[0] for name in select_names(images, per_class=6))
    assert chosen == {"0 background": 3, "0 texture": 3, "1 background": 3, "1 texture": 3}
    assert len(select_names(images, per_nuisance=4)) == 2 * (4 + 3)
    assert select_names(images, per_class=6) == select_names(images[::-1], per_class=6)


def test_a_surrogate_without_an_answer_is_an_error() -> None:
    with pytest.raises(BadSpec, match="no answer"):
        select([candidate("x", "abc")], MiningSpec(), surrogates=("d",))


def test_hashes_are_near_for_alike_images_only() -> None:
    drawn = np.random.default_rng(0)
    smooth = np.kron(drawn.integers(0, 255, (2, 8, 8, 3)), np.ones((1, 8, 8, 1))).astype(np.uint8)
    noisy = np.clip(smooth[0].astype(int) + drawn.integers(-4, 5, smooth[0].shape), 0, 255).astype(np.uint8)
    assert distance(perceptual_hash(smooth[0]), perceptual_hash(noisy)) <= 4
    assert distance(perceptual_hash(smooth[0]), perceptual_hash(smooth[0][::2, ::2])) <= 4
    assert distance(perceptual_hash(smooth[0]), perceptual_hash(smooth[1])) > 12
    vector = drawn.standard_normal(256)
    assert distance(embedding_hash(vector), embedding_hash(vector + 0.01 * drawn.standard_normal(256))) <= 3
    assert 16 < distance(embedding_hash(vector), embedding_hash(drawn.standard_normal(256))) < 48
