"""Public sets for ImageNet classifiers are read as they are laid out, and tested by the protocol that only predicts."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil import protocols
from counterfoil.core.errors import BadData
from counterfoil.parts import imagenet, registry
from counterfoil.parts.datasets.image_set import ImageSet
from counterfoil.protocols.corruptions import ALEXNET
from tests.parts.datasets.public import GOLDFISH, LAYOUTS, TENCH, imagenet_d, objectnet, place, version_two


def read(kind: str, root: Path, **options: object) -> ImageSet:
    found = registry.create("dataset", f"{kind}:{root}", options)
    assert isinstance(found, ImageSet)
    return found


@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_layout_says_class_and_what_was_done(kind: str, tmp_path: Path) -> None:
    pattern, done = LAYOUTS[kind]
    found = read(kind, place(tmp_path, pattern.format(TENCH), pattern.format(GOLDFISH), "readme/notes.txt"))
    assert found.classes == ["tench", "goldfish"] and found.class_ids == {"tench": (TENCH,), "goldfish": (GOLDFISH,)}
    assert [f"{sample.factor} {sample.value}".strip() for sample in found] == [done, done]
    assert found.load(next(iter(found)), 8).shape == (3, 8, 8)


def test_folders_of_version_two_are_numbers_of_classes(tmp_path: Path) -> None:
    found = read("imagenet-v2", version_two(tmp_path))
    expected = [imagenet.classes()[number].wordnet for number in (0, 1, 10)]
    assert [found.class_ids[found.classes[sample.label]] for sample in found] == [(each,) for each in expected]


def test_objects_go_by_the_mappings_and_lose_the_border(tmp_path: Path) -> None:
    root, classes = objectnet(tmp_path), imagenet.classes()
    found = read("objectnet", root)
    several = {found.class_ids[found.classes[sample.label]] for sample in found}
    assert several == {(classes[423].wordnet, classes[559].wordnet), (classes[906].wordnet,), (classes[409].wordnet,)}
    assert found.load(next(iter(found)), None).shape == (3, 12, 16)
    (root / "mappings" / "objectnet_to_imagenet_1k.json").unlink()
    with pytest.raises(BadData, match="they come with the images"):
        read("objectnet", root)


def test_the_released_imagenet_d_says_object_and_kind(tmp_path: Path) -> None:
    found = read("imagenet-d", imagenet_d(tmp_path))
    assert [(found.classes[sample.label], sample.factor) for sample in found] == [
        ("alarm clock", "background"),
        ("mug", "background"),
        ("binder (closed)", "material"),
    ]
    assert found.class_ids is not None and found.class_ids["alarm clock"] == ("n02708093", "n03196217")


def test_a_wrong_root_says_what_its_folders_should_be(tmp_path: Path) -> None:
    place(tmp_path, f"{TENCH}/a.JPEG", f"{GOLDFISH}/a.JPEG")
    with pytest.raises(BadData, match="a corruption, such as fog, then a severity, 1 to 5, then a class's WordNet id"):
        read("imagenet-c", tmp_path)


def test_the_mean_corruption_error_is_that_of_its_definition(tmp_path: Path) -> None:
    files = [
        f"{kind}/{level}/{each}/{n}.JPEG"
        for kind in ("fog", "snow")
        for level in (1, 5)
        for each in (TENCH, GOLDFISH)
        for n in "ab"
    ]
    model = {"name": "timm:test_resnet", "pretrained": False}
    values = {"protocol": "static", "model": model, "data": f"imagenet-c:{place(tmp_path / 'c', *files)}"}
    run = protocols.run(protocols.parse(values), tmp_path / "run")
    assert run.results is not None and set(run.results["factors"]) == {"fog 1", "fog 5", "snow 1", "snow 5"}
    error = {
        kind: 100 - sum(run.results["factors"][f"{kind} {n}"]["accuracy"]["value"] for n in (1, 5)) / 2
        for kind in ("fog", "snow")
    }
    wanted = sum(100 * error[kind] / ALEXNET[kind] for kind in error) / 2
    assert run.results["mCE"]["value"] == pytest.approx(wanted, abs=1e-3)
    text = protocols.of(run).text(run.results)
    assert "mean (mCE)" in text and "13 of the 15 corruptions are not there" in text
    some = read("imagenet-c", tmp_path / "c", corruptions=["fog"], severities=[5])
    assert {(sample.factor, sample.value) for sample in some} == {("fog", "5")}
