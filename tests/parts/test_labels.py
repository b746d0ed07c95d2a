from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.errors import BadData, LabelMismatch
from counterfoil.parts import imagenet, labels


def test_names_match_whatever_their_order() -> None:
    assert labels.match(["dog", "cat"], ["cat", "bird", "dog"], what="model") == [2, 0]


@pytest.mark.parametrize("name", ["Great_White-shark", "great white shark", "GREATWHITESHARK", " great  white shark "])
def test_case_and_separators_do_not_matter(name: str) -> None:
    assert labels.match([name], ["tench", "great white shark"], what="model") == [1]


def test_accents_do_not_matter() -> None:
    assert labels.match(["creme brulee", "Flügel"], ["flugel", "crème brûlée"], what="model") == [1, 0]


def test_names_in_other_scripts_are_kept_apart() -> None:
    assert labels.match(["犬", "+"], ["猫", "犬", "+", "-"], what="model") == [1, 2]


def test_one_of_several_names_is_enough() -> None:
    assert labels.match(["tench", "Carassius auratus"], ["goldfish, Carassius auratus", "tench, Tinca tinca"], what="m") == [1, 0]
    assert labels.match(["tench, Tinca tinca"], ["goldfish", "tench"], what="m") == [1]


def test_an_alias_is_enough() -> None:
    assert labels.match(["n01440764"], ["goldfish", "tench"], what="m", aliases=[["n01443537"], ["n01440764"]]) == [1]


def test_an_alias_of_the_wanted_class_is_enough() -> None:
    found = labels.match(
        ["a fish"], ["goldfish", "tench"], what="m", aliases=[["n01443537"], ["n01440764"]], wanted_aliases=[["n01440764"]]
    )
    assert found == [1]


def test_the_full_name_goes_before_a_part_and_an_alias() -> None:
    assert labels.match(["crane"], ["crane, bird", "crane"], what="m") == [1]
    assert labels.match(["crane"], ["crane bird", "crane"], what="m", aliases=[["crane"], []]) == [1]


def test_a_name_that_fits_two_classes_is_refused() -> None:
    with pytest.raises(LabelMismatch, match=r"model x: class 'crane' may be 'crane, bird' \(number 0\) or 'crane, machine'"):
        labels.match(["crane"], ["crane, bird", "crane, machine"], what="model x")


def test_two_names_for_one_class_are_refused() -> None:
    with pytest.raises(LabelMismatch, match="'tench' and 'Tinca tinca' are both its class"):
        labels.match(["tench", "Tinca tinca"], ["tench, Tinca tinca"], what="model")


def test_missing_names_are_listed_with_the_nearest() -> None:
    with pytest.raises(LabelMismatch) as caught:
        labels.match(["sneeker", "boot", "zzz", "yyy", "xxx"], ["sneaker", "boot", "bag"], what="model timm:x")
    text = str(caught.value)
    assert text.startswith("model timm:x: 4 of 5 classes are not among its 3 ('sneaker', 'boot', 'bag', …): ")
    assert "'sneeker' (nearest: 'sneaker')" in text
    assert "and 1 more" in text
    assert "\n" not in text


def test_names_that_differ_by_case_alone_are_told_apart_to_the_letter() -> None:
    assert labels.match(["turkey", "Turkey"], ["Turkey", "turkey"], what="m") == [1, 0]


def test_names_come_from_a_text_or_a_json_list(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("tench\ngoldfish\n\n", encoding="utf-8")
    (tmp_path / "names.json").write_text('["tench", "goldfish"]', encoding="utf-8")
    assert labels.read_names(tmp_path / "names.txt") == labels.read_names(tmp_path / "names.json") == ["tench", "goldfish"]


@pytest.mark.parametrize(("name", "content"), [("a.json", "{"), ("a.json", '{"a": 1}'), ("a.txt", None)])
def test_unreadable_names_are_refused(tmp_path: Path, name: str, content: str | None) -> None:
    if content is not None:
        (tmp_path / name).write_text(content, encoding="utf-8")
    with pytest.raises(LabelMismatch, match=name):
        labels.read_names(tmp_path / name)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("n.json", '{"b": "beta", "a": "alpha", "c": "gamma"}'),
        ("n.txt", "b beta\nc gamma\n\na alpha\n"),
        ("n.csv", "id,index,name\na,0,alpha\nb,1,beta\nc,2,gamma\n"),
        ("n.csv", "name,id\nalpha,a\nbeta,b\n"),
        ("n.tsv", "id\tname\na\talpha\nb\tbeta\n"),
    ],
)
def test_a_mapping_is_read_from_every_layout(tmp_path: Path, file: str, content: str) -> None:
    (tmp_path / file).write_text(content, encoding="utf-8")
    assert labels.read_mapping(tmp_path / file, ["a", "b"]) == {"a": "alpha", "b": "beta"}


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("n.csv", "a,alpha\nb,beta\n", "no column 'name'.*give a JSON mapping"),
        ("n.json", '["alpha", "beta"]', r"names cannot be read \(a JSON list\)"),
        ("n.json", "[", "not JSON"),
        ("n.json", "[" * 100_000, "nested"),
        ("m.txt", None, "cannot be read"),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused(tmp_path: Path, file: str, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / file).write_text(content, encoding="utf-8")
    with pytest.raises(LabelMismatch, match=f"{file}: .*{message}"):
        labels.read_mapping(tmp_path / file, ["a", "b"])


def test_a_binary_file_of_names_is_refused(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_bytes(bytes(range(256)))
    with pytest.raises(LabelMismatch, match=r"names.txt: cannot be read \(not a text in UTF-8\)"):
        labels.read_names(str(tmp_path / "names.txt"))


def test_words_are_the_classes_sorted() -> None:
    found = labels.resolve_labels(["dog", "cat", "dog"], None, what="x")
    assert (found.classes, found.numbers) == (["cat", "dog"], {"cat": 0, "dog": 1})


def test_wordnet_ids_are_put_into_words() -> None:
    found = labels.resolve_labels(["n02012849", "n01440764"], None, what="x")
    assert found.classes == ["tench", "crane bird"]
    assert found.aliases == [("n01440764",), ("n02012849",)]


def test_numbers_name_themselves_or_count_the_names_given(tmp_path: Path) -> None:
    assert labels.resolve_labels(["2", "0"], None, what="x").classes == ["0", "1", "2"]
    (tmp_path / "names.txt").write_text("cat\ndog\nelk\n")
    found = labels.resolve_labels(["2", "0"], str(tmp_path / "names.txt"), what="x")
    assert (found.classes, found.numbers) == (["cat", "dog", "elk"], {"0": 0, "2": 2})


def test_words_are_found_among_the_names_given() -> None:
    found = labels.resolve_labels(["Hot-Dog", "cat"], ["cat", "dog", "hot_dog"], what="x")
    assert found.numbers == {"Hot-Dog": 2, "cat": 0}
    assert found.classes == ["cat", "dog", "hot_dog"]


def test_numbers_that_are_names_are_names() -> None:
    assert labels.resolve_labels(["10", "20"], ["10", "20"], what="x").numbers == {"10": 0, "20": 1}


@pytest.mark.parametrize(
    ("written", "classes", "message"),
    [
        ([], None, "no images"),
        (["cat"], None, "only one class"),
        (["0", "5"], ["a", "b"], "labels go up to 5, but there are 2 classes"),
        (["cat", "cow"], ["cat", "dog"], "'cow'"),
        (["0", "200000000"], None, "x: 200000000 is no class number, these are below 1,000,000"),
        (["0", "9" * 5_000], None, "is no class number"),
    ],
)
def test_labels_that_make_no_sense_are_refused(written: list[str], classes: list[str] | None, message: str) -> None:
    with pytest.raises((BadData, LabelMismatch), match=message):
        labels.resolve_labels(written, classes, what="x")


OFFERED = ["ant", "bee", "cat", "dog", "oak, Quercus"]
ALIASES = [("n1",), ("n2",), ("n3",), ("n4",), ("n5",)]


def test_members_are_names_aliases_numbers_and_ranges() -> None:
    groups = labels.read_groups({"insect": ["ant", "n2"], "mammal": "2-3", "tree": [4]})
    assert labels.resolve_groups(groups, OFFERED, what="m", aliases=ALIASES) == {"insect": [0, 1], "mammal": [2, 3], "tree": [4]}


@pytest.mark.parametrize("name", ["groups.json", "groups.yaml"])
def test_groups_come_from_a_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(json.dumps({"insect": ["ant", "bee"], "mammal": ["cat"]}))
    assert labels.read_groups(str(tmp_path / name)) == {"insect": ["ant", "bee"], "mammal": ["cat"]}


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
        ({"a": ["0-200000000"], "b": [0]}, "200000000 is no class number"),
    ],
)
def test_groups_that_make_no_sense_are_refused(groups: dict[str, Any], message: str) -> None:
    with pytest.raises((BadData, LabelMismatch), match=message):
        labels.resolve_groups(labels.read_groups(groups), OFFERED, what="m", aliases=ALIASES)


def test_members_that_are_not_there_may_be_passed_over() -> None:
    groups = labels.read_groups({"insect": ["ant", "wasp"], "tree": ["n5"], "fish": ["cod"]})
    assert labels.resolve_groups(groups, OFFERED, what="m", aliases=ALIASES, partial=True) == {"insect": [0], "tree": [4]}


def test_a_file_of_groups_that_is_no_mapping_is_refused(tmp_path: Path) -> None:
    (tmp_path / "list.json").write_text("[1, 2]")
    (tmp_path / "bad.yaml").write_text("{a: [")
    for name, message in (("list.json", "holds a list"), ("bad.yaml", "not YAML"), ("none.json", "imagenet-9")):
        with pytest.raises(LabelMismatch, match=message):
            labels.read_groups(str(tmp_path / name))


def test_the_nine_classes_are_those_of_the_paper() -> None:
    groups = labels.read_groups("imagenet-9")
    assert list(groups) == ["dog", "cat", "frog", "turtle", "bird", "primate", "fish", "crab", "insect"]
    assert [len(members) for members in groups.values()] == [118, 5, 3, 5, 21, 18, 9, 4, 20]
    names, ids = imagenet.names_and_aliases()
    numbers = labels.resolve_groups(groups, names, what="model", aliases=ids)
    ends = {group: (names[members[0]], names[members[-1]]) for group, members in numbers.items()}
    assert ends["dog"] == ("Chihuahua", "Mexican hairless")
    assert ends["turtle"] == ("loggerhead", "box turtle")
    assert ends["primate"] == ("orangutan", "squirrel monkey")
    assert ends["insect"] == ("tiger beetle", "dragonfly")
