from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil.core.errors import LabelMismatch
from counterfoil.parts import labels


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
        ("n.json", '["alpha", "beta"]'),
        ("n.txt", "alpha\nbeta\n"),
        ("n.txt", "b beta\nc gamma\na alpha\n"),
        ("n.csv", "a,alpha\nb,beta\n"),
        ("n.csv", "id,index,name\na,0,alpha\nb,1,beta\nc,2,gamma\n"),
        ("n.csv", "name,index,id\nalpha,0,a\nbeta,1,b\n"),
        ("n.tsv", "a\talpha\nb\tbeta\n"),
    ],
)
def test_a_mapping_is_read_from_every_layout(tmp_path: Path, file: str, content: str) -> None:
    (tmp_path / file).write_text(content, encoding="utf-8")
    assert labels.read_mapping(tmp_path / file, ["a", "b"]) == {"a": "alpha", "b": "beta"}


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("n.txt", "alpha\n", "1 names for 2 classes"),
        ("n.csv", "x,alpha\ny,beta\n", "no column holds"),
        ("n.csv", "a\nb\n", "no column holds"),
        ("n.json", "[", "cannot be read"),
        ("m.txt", None, "cannot be read"),
    ],
)
def test_a_mapping_that_does_not_fit_is_refused(tmp_path: Path, file: str, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / file).write_text(content, encoding="utf-8")
    with pytest.raises(LabelMismatch, match=f"{file}: .*{message}"):
        labels.read_mapping(tmp_path / file, ["a", "b"])
