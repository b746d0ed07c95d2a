"""Mistakes by what they follow: named by the nuisance, pulled by it, or neither."""

from __future__ import annotations

import random

import pytest
from scipy.stats import fisher_exact

from counterfoil.protocols.imagenet_d.analyses import OTHER, find_pulls, names_nuisance, sort_mistakes

THINGS = ("mug", "sock", "lamp", "bag", "boot")
PLACES = ("beach", "forest", "night", "snow")


def grid(times: int = 3) -> tuple[list[str], list[str], list[str]]:
    rows = [(thing, place) for thing in THINGS for place in PLACES for _ in range(times)]
    return [thing for thing, _ in rows], ["background"] * len(rows), [place for _, place in rows]


def test_an_answer_that_one_nuisance_draws_is_driven_by_it() -> None:
    truth, kinds, places = grid()
    answers = ["mug" if place == "beach" else thing for thing, place in zip(truth, places, strict=True)]
    modes, pulls = sort_mistakes(truth, answers, kinds, places)
    assert [(pull.nuisance, pull.answer, pull.times, pull.among) for pull in pulls] == [("beach", "mug", 12, 12)]
    assert pulls[0].elsewhere == 0
    wrong = [mode for mode, said, right in zip(modes, answers, truth, strict=True) if said != right]
    assert wrong == ["background"] * 12
    assert not any(mode for mode, said, right in zip(modes, answers, truth, strict=True) if said == right)


def test_an_answer_given_everywhere_is_not_drawn_by_any() -> None:
    truth, kinds, places = grid()
    modes, pulls = sort_mistakes(truth, ["bag"] * len(truth), kinds, places)
    assert not pulls and set(modes) == {"", OTHER}


def test_two_objects_that_look_alike_are_no_pull() -> None:
    truth, kinds, places = grid(6)
    answers = ["sock" if thing == "boot" and place == "snow" else thing for thing, place in zip(truth, places, strict=True)]
    modes, pulls = sort_mistakes(truth, answers, kinds, places)
    assert not pulls and set(modes) == {"", OTHER}  # one object only, so it may as well be the object


def test_mistakes_at_random_are_other() -> None:
    drawn = random.Random(1)
    found = 0
    for _ in range(20):
        truth, kinds, places = grid()
        answers = [drawn.choice(THINGS) for _ in truth]
        found += len(find_pulls(truth, answers, kinds, places))
    assert found <= 1  # twenty tests at one per cent, all pairs corrected for


def test_pictures_of_one_prompt_have_one_voice() -> None:
    found = 0
    for seed in range(10):
        drawn = random.Random(seed)
        said: dict[tuple[str, str], str] = {}
        truth, kinds, places = grid(6)
        for prompt in zip(truth, places, strict=True):
            said.setdefault(prompt, prompt[0] if drawn.random() < 0.6 else drawn.choice(THINGS))
        answers = [said[prompt] for prompt in zip(truth, places, strict=True)]  # alike throughout
        found += bool(find_pulls(truth, answers, kinds, places))
    assert found <= 1  # ten tests at one per cent


def test_rare_answers_that_happen_to_share_a_nuisance_are_no_pull() -> None:
    found = 0
    for seed in range(10):
        drawn = random.Random(seed)
        truth, places = zip(*((f"thing {thing}", f"place {place}") for thing in range(10) for place in range(200)), strict=True)
        answers = [thing if drawn.random() < 0.7 else f"answer {drawn.randrange(400)}" for thing in truth]
        found += bool(find_pulls(truth, answers, ["background"] * len(truth), places, level=0.05))
    assert found <= 2  # ten tests at five per cent


def test_the_chance_is_fishers() -> None:
    truth, kinds, places = grid(1)
    answers = ["mug" if place == "beach" and thing != "bag" else thing for thing, place in zip(truth, places, strict=True)]
    pull = find_pulls(truth, answers, kinds, places, level=1.0)[0]
    assert (pull.times, pull.among) == (3, 4)
    inside, elsewhere = (pull.times, pull.among - pull.times), (0, 12)
    chance = fisher_exact([inside, elsewhere], alternative="greater").pvalue
    assert pull.p == pytest.approx(len(PLACES) * chance)  # one answer, with any of the places


@pytest.mark.parametrize(
    ("answer", "nuisance", "truth", "named"),
    [
        ("sandbar, beach", "beach", "boot", True),
        ("honeycomb", "honeycombed", "mug", True),
        ("stone wall", "brick wall", "mug", True),
        ("knitted sock", "knitted", "sock", True),
        ("park bench", "park bench", "bench", True),
        ("coffee mug", "coffee house", "coffee press", False),  # the truth has that word too
        ("bee", "beach", "boot", False),
        ("seashore", "beach", "boot", False),
    ],
)
def test_answers_that_name_the_nuisance(answer: str, nuisance: str, truth: str, named: bool) -> None:
    assert names_nuisance(answer, nuisance, truth) is named


def test_a_picture_without_a_nuisance_has_other_mistakes() -> None:
    modes, pulls = sort_mistakes(["mug", "sock"], ["sock", "sock"], ["", ""], ["", ""])
    assert list(modes) == [OTHER, ""] and not pulls
