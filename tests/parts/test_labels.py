"""Class names: matched, grouped, read from files, and those of ImageNet."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.errors import BadData, LabelMismatch
from counterfoil.parts import imagenet, labels

SPELLINGS = ("Great_White-shark", "GREATWHITESHARK", " great  white shark ")
FISH = [["n01443537"], ["n01440764"]]


@pytest.mark.parametrize(
    ("wanted", "offered", "aliases", "expected"),
    [
        (["dog", "cat"], ["cat", "bird", "dog"], None, [2, 0]),
        *(([name], ["tench", "great white shark"], None, [1]) for name in SPELLINGS),
        (["creme brulee", "Flügel"], ["flugel", "crème brûlée"], None, [1, 0]),
        (["犬", "+"], ["猫", "犬", "+", "-"], None, [1, 2]),
        (["tench", "Carassius auratus"], ["goldfish, Carassius auratus", "tench, Tinca tinca"], None, [1, 0]),
        (["tench, Tinca tinca"], ["goldfish", "tench"], None, [1]),
        (["n01440764"], ["goldfish", "tench"], FISH, [1]),
        (["crane"], ["crane, bird", "crane"], None, [1]),  # the full name goes before a part and an alias
        (["crane"], ["crane bird", "crane"], [["crane"], []], [1]),
        (["turkey", "Turkey"], ["Turkey", "turkey"], None, [1, 0]),
    ],
)
def test_names_match_whatever_their_order_and_spelling(wanted: Any, offered: Any, aliases: Any, expected: list[int]) -> None:
    assert labels.match(wanted, offered, what="model", aliases=aliases) == expected


def test_an_alias_of_the_wanted_class_is_enough() -> None:
    assert labels.match(["a fish"], ["goldfish", "tench"], what="m", aliases=FISH, wanted_aliases=[["n01440764"]]) == [1]


@pytest.mark.parametrize(
    ("wanted", "offered", "message"),
    [
        (["crane"], ["crane, bird", "crane, machine"], r"x: class 'crane' may be 'crane, bird' \(number 0\) or 'crane, machine'"),
        (["tench", "Tinca tinca"], ["tench, Tinca tinca"], "'tench' and 'Tinca tinca' are both its class"),
    ],
)
def test_names_that_could_be_another_are_refused(wanted: Any, offered: Any, message: str) -> None:
    with pytest.raises(LabelMismatch, match=message):
        labels.match(wanted, offered, what="model x")


def test_missing_names_are_listed_with_the_nearest() -> None:
    with pytest.raises(LabelMismatch) as caught:
        labels.match(["sneeker", "boot", "zzz", "yyy", "xxx"], ["sneaker", "boot", "bag"], what="model timm:x")
    text = str(caught.value)
    assert text.startswith("model timm:x: 4 of 5 classes are not among its 3 ('sneaker', 'boot', 'bag', …): ")
    assert "'sneeker' (nearest: 'sneaker')" in text
    assert "and 1 more" in text
    assert "\n" not in text


def test_names_come_from_a_text_or_a_json_list(tmp_path: Path) -> None:
    (tmp_path / "names.txt").write_text("tench\ngoldfish\n\n", encoding="utf-8")
    (tmp_path / "names.json").write_text('["tench", "goldfish"]', encoding="utf-8")
    assert labels.read_names(tmp_path / "names.txt") == labels.read_names(tmp_path / "names.json") == ["tench", "goldfish"]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [("a.json", b"{", ""), ("a.json", b'{"a": 1}', ""), ("a.txt", None, ""), ("a.txt", bytes(range(256)), "not a text in UTF-8")],
)
def test_unreadable_names_are_refused(tmp_path: Path, name: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(LabelMismatch, match=f"{name}.*{message}"):
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


@pytest.mark.parametrize(
    ("written", "given", "classes", "numbers"),
    [
        (["dog", "cat", "dog"], None, ["cat", "dog"], {"cat": 0, "dog": 1}),
        (["n02012849", "n01440764"], None, ["tench", "crane bird"], {"n01440764": 0, "n02012849": 1}),
        (["2", "0"], None, ["0", "1", "2"], {"0": 0, "2": 2}),
        (["2", "0"], ["cat", "dog", "elk"], ["cat", "dog", "elk"], {"0": 0, "2": 2}),
        (["Hot-Dog", "cat"], ["cat", "dog", "hot_dog"], ["cat", "dog", "hot_dog"], {"Hot-Dog": 2, "cat": 0}),
        (["10", "20"], ["10", "20"], ["10", "20"], {"10": 0, "20": 1}),
    ],
)
def test_labels_are_names_ids_or_numbers_of_names(tmp_path: Path, written: Any, given: Any, classes: Any, numbers: Any) -> None:
    (tmp_path / "names.txt").write_text("\n".join(given or []))
    for names in (given, given and str(tmp_path / "names.txt")):
        found = labels.resolve_labels(written, names, what="x")
        assert (found.classes, found.numbers) == (classes, numbers)


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


def test_imagenet_has_a_thousand_classes_told_apart_by_name_and_id() -> None:
    known = imagenet.classes()
    assert len(known) == len({labels.key(entry.name) for entry in known}) == len({entry.wordnet for entry in known}) == 1000
    assert (known[0].wordnet, known[0].name, known[0].lemmas) == ("n01440764", "tench", "tench, Tinca tinca")
    assert known[134].lemmas == known[517].lemmas == "crane"


def test_every_imagenet_class_is_found_by_its_name_and_its_id() -> None:
    names, aliases = imagenet.names_and_aliases()
    assert labels.match(names, names, what="m", aliases=aliases) == list(range(1000))
    assert labels.match([entry.wordnet for entry in imagenet.classes()], names, what="m", aliases=aliases) == list(range(1000))


def test_torchvisions_names_for_imagenet_are_told_apart() -> None:
    from torchvision.models import ResNet18_Weights

    categories = ResNet18_Weights.DEFAULT.meta["categories"]
    names, aliases = labels.recognise(categories)
    assert {old: new for old, new in zip(categories, names, strict=True) if old != new} == {"Cardigan": "Cardigan Welsh corgi"}
    assert aliases is not None
    assert aliases[0] == ("n01440764", "tench, Tinca tinca", "tench", "Tinca tinca")
    assert labels.recognise(categories[::-1]) == (categories[::-1], None)


def test_imagenet_is_recognised_by_any_of_its_spellings() -> None:
    for spelt in ([entry.lemmas for entry in imagenet.classes()], [entry.wordnet for entry in imagenet.classes()]):
        names, aliases = labels.recognise(spelt)
        assert names == [entry.name for entry in imagenet.classes()]
        assert aliases is not None and len(aliases) == 1000
    names, aliases = labels.recognise(["nothing", *[entry.lemmas for entry in imagenet.classes()]])
    assert names[:2] == ["nothing", "tench"] and aliases is not None and len(aliases) == 1001


def test_a_thousand_other_names_are_left_alone() -> None:
    shuffled = [entry.name for entry in imagenet.classes()][::-1]
    assert labels.recognise(shuffled) == (shuffled, None)


def test_names_that_occur_twice_are_numbered() -> None:
    assert labels.recognise(["crane", "boat", "crane"]) == (["crane (number 0)", "boat", "crane (number 2)"], None)


def test_the_table_of_names_is_that_of_timm_and_torchvision() -> None:
    from timm.data.imagenet_info import ImageNetInfo
    from torchvision.models import ResNet18_Weights

    info, known = ImageNetInfo("imagenet-1k"), imagenet.classes()
    assert [entry.wordnet for entry in known] == info.label_names()
    assert [entry.lemmas for entry in known] == info.label_descriptions()
    usual = ResNet18_Weights.DEFAULT.meta["categories"]
    assert {entry.name: other for entry, other in zip(known, usual, strict=True) if entry.name != other} == {
        "Cardigan Welsh corgi": "Cardigan"
    }


def test_no_library_of_models_is_loaded_to_name_a_class() -> None:
    script = (
        "import sys\n"
        "from counterfoil.parts import imagenet, labels\n"
        "assert imagenet.in_words(['n01440764']) == ['tench'] and labels.read_groups('imagenet-9')\n"
        "print([name for name in ('timm', 'torchvision', 'torch') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip() == "[]"
