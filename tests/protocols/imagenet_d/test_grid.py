"""Grids: what they come to, how they are sampled, and what is refused."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.errors import BadSpec
from counterfoil.parts import imagenet
from counterfoil.protocols.imagenet_d.grid import read_grid
from counterfoil_lab.captions import parse


def small(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "objects": {"mug": ["n1"], "apple": ["n2", "n3"], "shears": {"ids": ["n4"], "lead": "a pair of"}},
        "nuisances": {
            "background": {
                "words": {"beach": "on a beach", "sea": "under water"},
                "templates": ["a photo of {a} {object} {nuisance}"],
            },
            "texture": {"words": ["striped"], "templates": ["{a} {nuisance} {colour} {object}"]},
        },
        "fillers": {"colour": ["red", "orange"]},
    }
    return {**values, **changes}


def test_a_full_grid_names_every_pair_in_english() -> None:
    texts = [prompt.text for prompt in read_grid(small()).prompts()]
    assert len(texts) == 9
    for one in ("a mug", "an apple", "a pair of shears"):
        assert {f"a photo of {one} on a beach", f"a photo of {one} under water"} < {*texts}
    assert {"a striped red mug", "a striped orange mug"} & {*texts}


@pytest.mark.parametrize(
    ("thing", "prompt"),
    [("hourglass", "an hourglass"), ("unicycle", "a unicycle"), ("ukulele", "a ukulele"), ("8-ball", "an 8-ball")],
)
def test_articles_go_by_sound(thing: str, prompt: str) -> None:
    values = {"objects": [thing, "mug"], "nuisances": {"place": {"words": ["at sea"], "templates": ["{a} {object} {nuisance}"]}}}
    assert next(iter(read_grid(values).prompts())).text == f"{prompt} at sea"


def test_a_prompt_does_not_hang_on_what_else_is_sampled() -> None:
    whole = {prompt.prompt_id: prompt for prompt in read_grid(small(images=2)).prompts(5)}
    some = list(read_grid(small(images=2, count=7)).prompts(5))
    assert len({prompt.prompt_id for prompt in some}) == 7
    assert all(whole[prompt.prompt_id] == prompt for prompt in some)
    other = [prompt.prompt_id for prompt in read_grid(small(images=2, count=7)).prompts(6)]
    assert other != [prompt.prompt_id for prompt in some]


@pytest.mark.parametrize("objects", [6, 7])  # with a common divisor of twelve words, and without
def test_balanced_sampling_is_even_at_any_count(objects: int) -> None:
    values = {
        "objects": [f"thing {number}" for number in range(objects)],
        "nuisances": {
            kind: {"words": [f"{kind} {number}" for number in range(12)], "templates": "{object} {nuisance}"} for kind in "ab"
        },
    }
    for count in (2 * objects, 50, 2 * objects * 12):
        prompts = list(read_grid({**values, "count": count}).prompts())
        assert len({prompt.prompt_id for prompt in prompts}) == count
        for kind in "ab":
            ours = [prompt for prompt in prompts if prompt.kind == kind]
            assert len(ours) == count // 2
            for counted, among in ((Counter(p.object for p in ours), objects), (Counter(p.nuisance for p in ours), 12)):
                every = [*counted.values(), *[0] * (among - len(counted))]
                assert max(every) - min(every) <= 1 + (among == 12 and objects == 6)


def test_excluded_pairs_are_left_out_and_counted() -> None:
    grid = read_grid(small(exclude=[{"object": "mug", "background": "sea"}, {"texture": "striped"}]))
    assert len(grid) == 5 == len(list(grid.prompts()))
    assert not any(prompt.kind == "texture" or (prompt.object, prompt.nuisance) == ("mug", "sea") for prompt in grid.prompts())


def test_ten_thousand_prompts_of_imagenet_are_planned() -> None:
    grid = read_grid("imagenet-d")
    prompts = list(grid.prompts())
    assert len({prompt.prompt_id for prompt in prompts}) == len(prompts) == len(grid) == 10_000
    named = Counter(prompt.object for prompt in prompts)
    assert len(named) == 113 and max(named.values()) - min(named.values()) <= 3


def test_the_objects_are_the_papers_and_their_ids_imagenets() -> None:
    things = read_grid("imagenet-d").objects
    ids = [each for thing in things for each in thing.ids]
    assert len(things) == 113
    assert len(set(ids)) == len(ids) == 125
    assert sum(len(thing.ids) > 1 for thing in things) == 9
    assert set(ids) <= {entry.wordnet for entry in imagenet.classes()}
    kinds = {kind: len(nuisance.words) for kind, nuisance in read_grid("imagenet-d").nuisances.items()}
    assert kinds == {"background": 468, "texture": 47, "material": 32}


def test_the_labs_prompts_are_sentences_its_painter_knows() -> None:
    for prompt in read_grid("lab").prompts():
        said = parse(prompt.text)
        assert said is not None and said["garment"] == prompt.object and said[prompt.kind] == prompt.nuisance


def test_words_come_from_files_people_have(tmp_path: Path) -> None:
    (tmp_path / "scenes.csv").write_text("code,name\n1,living_room-s\n2,bow_window-indoor-s\n")
    (tmp_path / "plain.txt").write_text("# mine\nattic\n\ncellar\n")
    for name, words in (("scenes.csv", ["living room", "bow window indoor"]), ("plain.txt", ["attic", "cellar"])):
        nuisances = {"background": {"words": str(tmp_path / name), "templates": "{object} in a {nuisance}"}}
        assert list(read_grid(small(nuisances=nuisances)).nuisances["background"].words) == words


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"objects": {"mug": [], "apple": ["n2"]}}, "'mug' has no ids"),
        ({"objects": {"mug": {"ids": []}, "apple": ["n2"]}}, "'mug' has no ids"),
        ({"objects": {}}, "none given"),
        ({"objects": ["mug"]}, "two or more"),
        ({"objects": {"mug": ["n1"], "cup": ["n1"]}}, "give each id to one object"),
        ({"objects": "no-such-list"}, "cannot be read"),
        ({"nuisances": {}}, "nuisances: dictionary should have at least 1 item"),
        ({"nuisances": {"background": {"words": [], "templates": "{object} {nuisance}"}}}, "no words"),
        ({"nuisances": {"background": {"words": ["sea"], "templates": "a photo of {object}"}}}, "no slot {nuisance}"),
        ({"nuisances": {"background": {"words": ["sea"], "templates": "{nuisance}"}}}, "no slot {object}"),
        (
            {"nuisances": {"background": {"words": ["sea"], "templates": "{object} {nuisance} {mood}"}}},
            "{mood}, which nothing fills",
        ),
        ({"nuisances": {"background": {"words": ["sea"], "templates": "{object {nuisance}"}}}, "cannot be read"),
        ({"nuisances": {"background": {"words": ["sea", "Sea"], "templates": "{object} {nuisance}"}}}, "same name"),
        ({"exclude": [{"background": "*"}, {"texture": "*"}]}, "empty"),
        ({"exclude": [{"background": "moon"}]}, "not both in the grid"),
        ({"count": 0}, "count: input should be greater than or equal to 1"),
        ({"colour": 1}, "unknown key 'colour'"),
    ],
)
def test_bad_grids_are_refused_in_one_line(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(BadSpec) as caught:
        read_grid(small(**changes))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)
