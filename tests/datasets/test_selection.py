from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.errors import BadData, LabelMismatch
from counterfoil.parts.contracts import Dataset
from counterfoil.parts.datasets.selection import subset_dataset
from counterfoil.testing import check_dataset
from tests.datasets.made import number_of, shade

HELD = {"ant": 4, "bee": 6, "cat": 8, "dog": 2}


@pytest.fixture
def photos(tmp_path: Path) -> str:
    number = 0
    for name, count in HELD.items():
        (tmp_path / name).mkdir()
        for at in range(count):
            shade(number).save(tmp_path / name / f"{at}.png")
            number += 1
    return str(tmp_path)


def counts(data: Dataset) -> dict[str, int]:
    return dict(Counter(data.classes[sample.label] for sample in data))


def test_samples_keep_their_captions_and_places(tmp_path: Path) -> None:
    for number, name in enumerate(("ant", "bee", "cat")):
        shade(number).save(tmp_path / f"{name}.png")
    (tmp_path / "photos.csv").write_text("path,label,caption\nant.png,ant,on sand\nbee.png,bee,on a rose\ncat.png,cat,asleep\n")
    data = subset_dataset(f"csv:{tmp_path / 'photos.csv'}", classes=["cat", "ant"])
    assert [(sample.label, sample.caption) for sample in data] == [(1, "on sand"), (0, "asleep")]
    check_dataset(data)


def test_some_classes_in_the_order_asked_for(photos: str) -> None:
    data = subset_dataset(f"folder:{photos}", classes=["Dog", "bee"])
    assert list(data.classes) == ["Dog", "bee"]
    assert counts(data) == {"Dog": 2, "bee": 6}
    assert {number_of(data.load(sample, 8)) for sample in data if sample.label == 0} == {18, 19}
    check_dataset(data)


def test_groups_make_many_classes_one(photos: str) -> None:
    data = subset_dataset(photos, groups={"insect": ["ant", "bee", "wasp"], "mammal": ["cat"], "tree": ["oak"]})
    assert counts(data) == {"insect": 10, "mammal": 8}
    assert list(data.classes) == ["insect", "mammal"]
    check_dataset(data)


def test_the_nine_classes_of_imagenet(tmp_path: Path) -> None:
    for number, name in enumerate(("n02085620", "n02086240", "n02123045", "n01644373", "n03000134")):
        (tmp_path / name).mkdir()
        shade(number).save(tmp_path / name / "x.png")
    data = subset_dataset(str(tmp_path), groups="imagenet-9")
    assert counts(data) == {"dog": 2, "cat": 1, "frog": 1}  # and the chainlink fence is left out


@pytest.mark.parametrize("seed", [None, 0, 1])
def test_limits_hold_for_each_class_and_for_all(photos: str, seed: int | None) -> None:
    assert counts(subset_dataset(photos, per_class=3, seed=seed)) == {"ant": 3, "bee": 3, "cat": 3, "dog": 2}
    assert counts(subset_dataset(photos, count=6, seed=seed)) == {"ant": 1, "bee": 2, "cat": 2, "dog": 1}
    assert counts(subset_dataset(photos, per_class=2, count=100, seed=seed)) == dict.fromkeys(HELD, 2)
    assert len(subset_dataset(photos, classes=["ant", "cat"], count=5, seed=seed)) == 5
    check_dataset(subset_dataset(photos, per_class=3, seed=seed))


def test_a_seed_draws_others_and_always_the_same(photos: str) -> None:
    def drawn(seed: int | None) -> list[str]:
        return [sample.image_id for sample in subset_dataset(photos, per_class=2, seed=seed)]

    assert drawn(1) == drawn(1)
    assert len({tuple(drawn(seed)) for seed in (None, *range(6))}) >= 5


def test_every_picture_is_as_likely_to_be_drawn(photos: str) -> None:
    times = Counter(sample.image_id for seed in range(200) for sample in subset_dataset(photos, per_class=2, seed=seed))
    cats = [times[f"cat/{at}.png"] for at in range(8)]
    assert sum(cats) == 400
    assert min(cats) > 25 and max(cats) < 80  # fifty each is expected


def test_the_inner_options_are_passed_on(tmp_path: Path, photos: str) -> None:
    (tmp_path / "names.csv").write_text("folder,name\n" + "".join(f"{name},{name.upper()}S\n" for name in HELD))
    data = subset_dataset(f"folder:{photos}", per_class=1, options={"names": str(tmp_path / "names.csv")})
    assert list(data.classes) == ["ANTS", "BEES", "CATS", "DOGS"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"classes": ["ant", "bee"], "groups": {"a": ["ant"], "b": ["bee"]}}, "classes or groups, not both"),
        ({"classes": ["ant", "zebra"]}, "'zebra'"),
        ({"classes": ["ant"]}, "two are needed"),
        ({"groups": {"a": ["oak"], "b": ["elm"]}}, "0 of the 2 groups have a member"),
        ({"per_class": 0}, "at least 1"),
    ],
)
def test_wrong_use_is_refused(photos: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises((BadData, LabelMismatch), match=message):
        subset_dataset(photos, **options)


def test_a_data_set_has_to_be_named() -> None:
    with pytest.raises(BadData, match="name a data set"):
        subset_dataset("")


def test_provenance_says_what_was_kept(photos: str) -> None:
    data: Any = subset_dataset(photos, classes=["ant", "cat"], per_class=2, seed=3)
    told = data.provenance()
    assert told["kept"] == "12 of 20, 2 of 4 classes"
    assert told["drawn"] == "4 of 12, seed 3"
