from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.errors import LabelMismatch
from counterfoil.parts import imagenet, label_groups

OFFERED = ["ant", "bee", "cat", "dog", "oak, Quercus"]
ALIASES = [("n1",), ("n2",), ("n3",), ("n4",), ("n5",)]


def test_members_are_names_aliases_numbers_and_ranges() -> None:
    groups = label_groups.read({"insect": ["ant", "n2"], "mammal": "2-3", "tree": [4]})
    assert label_groups.resolve(groups, OFFERED, what="m", aliases=ALIASES) == {"insect": [0, 1], "mammal": [2, 3], "tree": [4]}


@pytest.mark.parametrize("name", ["groups.json", "groups.yaml"])
def test_groups_come_from_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(json.dumps({"insect": ["ant", "bee"], "mammal": ["cat"]}))
    assert label_groups.read(str(tmp_path / name)) == {"insect": ["ant", "bee"], "mammal": ["cat"]}


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        ({"a": ["ant"], "b": ["ant"]}, "its class 'ant' is in 'a' and 'b'"),
        ({"a": ["ant", 0], "b": ["bee"]}, "its class 'ant' is named twice in 'a'"),
        ({"a": ["ant"], "b": ["cow"]}, "'cow'"),
        ({"a": [9], "b": [1]}, "has classes 0 to 4, a group names number 9"),
        ({"a": ["ant"]}, "1 of the 1 groups have a member"),
        ({"a": ["3-1"], "b": [0]}, "ends before it begins"),
        ({"a": [1.5], "b": [0]}, "is a name, a number or a range, got 1.5"),
        ({"a": [], "b": [0]}, "'a' has no members"),
        ({}, "none given"),
    ],
)
def test_groups_that_make_no_sense_are_refused(groups: dict[str, Any], message: str) -> None:
    with pytest.raises(LabelMismatch, match=message):
        label_groups.resolve(label_groups.read(groups), OFFERED, what="m", aliases=ALIASES)


def test_members_that_are_not_there_may_be_passed_over() -> None:
    groups = label_groups.read({"insect": ["ant", "wasp"], "tree": ["n5"], "fish": ["cod"]})
    assert label_groups.resolve(groups, OFFERED, what="m", aliases=ALIASES, partial=True) == {"insect": [0], "tree": [4]}


def test_a_file_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "bad.yaml").write_text("{a: [")
    for name, message in (("list.json", "holds a list"), ("bad.yaml", "neither JSON nor YAML"), ("none.json", "imagenet-9")):
        with pytest.raises(LabelMismatch, match=message):
            label_groups.read(str(tmp_path / name))


def test_the_nine_classes_are_those_of_the_paper() -> None:
    groups = label_groups.read("imagenet-9")
    assert list(groups) == ["dog", "cat", "frog", "turtle", "bird", "primate", "fish", "crab", "insect"]
    assert [len(members) for members in groups.values()] == [118, 5, 3, 5, 21, 18, 9, 4, 20]
    names, ids = imagenet.names_and_aliases()
    numbers = label_groups.resolve(groups, names, what="model", aliases=ids)
    ends = {group: (names[members[0]], names[members[-1]]) for group, members in numbers.items()}
    assert ends["dog"] == ("Chihuahua", "Mexican hairless")
    assert ends["turtle"] == ("loggerhead", "box turtle")
    assert ends["primate"] == ("orangutan", "squirrel monkey")
    assert ends["insect"] == ("tiger beetle", "dragonfly")
