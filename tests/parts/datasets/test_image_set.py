"""The one data set class: its order, its selections, and what they take in memory."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from counterfoil.core.errors import BadData
from counterfoil.core.naming import stable_hash
from counterfoil.parts.contracts import Dataset, Sample
from counterfoil.parts.datasets.arrays import from_arrays
from counterfoil.parts.datasets.files import Files
from counterfoil.parts.datasets.image_set import ImageSet, index, shares
from counterfoil.testing import check_dataset
from tests.parts.created import subset_dataset
from tests.parts.datasets.made import number_of, shade

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


def test_every_picture_is_as_likely_to_be_drawn(photos: str) -> None:
    times = Counter(sample.image_id for seed in range(200) for sample in subset_dataset(photos, per_class=2, seed=seed))
    cats = [times[f"cat/{at}.png"] for at in range(8)]
    assert sum(cats) == 400
    assert min(cats) > 25 and max(cats) < 80  # fifty each is expected


def test_provenance_says_what_was_kept(photos: str) -> None:
    data: Any = subset_dataset(photos, classes=["ant", "cat"], per_class=2, seed=3)
    told = data.provenance()
    assert told["kept"] == "12 of 20, 2 of 4 classes"
    assert told["drawn"] == "4 of 12, seed 3"


def data(counts: list[int]) -> ImageSet:
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    return from_arrays(torch.arange(len(labels))[:, None, None, None].expand(-1, 3, 2, 2) / len(labels), labels)


@pytest.mark.parametrize(
    ("counts", "limit", "expected"),
    [
        ([10, 10], 4, [2, 2]),
        ([10, 10, 10], 10, [4, 3, 3]),
        ([2, 10, 10], 12, [2, 5, 5]),
        ([1, 2, 100], 10, [1, 2, 7]),
        ([5, 5, 5, 5], 2, [1, 1, 0, 0]),
    ],
)
def test_classes_share_evenly(counts: list[int], limit: int, expected: list[int]) -> None:
    taken = data(counts).limit(count=limit)
    found = Counter(sample.label for sample in taken)
    assert [found[label] for label in range(len(counts))] == expected
    assert len(taken) == limit == sum(found.values())


def test_shares_never_exceed_what_there_is_and_always_add_up() -> None:
    random = torch.Generator().manual_seed(0)
    for _ in range(200):
        held = Counter({label: int(torch.randint(1, 30, (), generator=random)) for label in range(7)})
        limit = int(torch.randint(1, held.total() + 1, (), generator=random))
        taken = shares(held, limit)
        assert sum(taken.values()) == limit
        assert all(share <= held[label] for label, share in taken.items())
        largest = max(taken.values())
        assert all(share == held[label] or share >= largest - 1 for label, share in taken.items())


def test_a_generous_limit_takes_everything() -> None:
    whole = data([2, 3])
    assert whole.limit(count=5) is whole
    assert whole.limit(count=99) is whole


class Listed:
    """A plug-in's data set: only what the contract asks for."""

    classes = ("ant", "bee", "cat")

    def __init__(self, labels: list[int]) -> None:
        self.labels = labels

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[Sample]:
        return (Sample(f"i{at}", label, f"from/{at}", "a caption" * (at % 2)) for at, label in enumerate(self.labels))

    def load(self, sample: Sample, size: int | None) -> torch.Tensor:
        return torch.full((3, size or 4, size or 4), int(sample.image_id[1:]) / 255)


def even_rows(labels: list[int], limit: int) -> list[int]:
    """The rows of an even selection, one by one: the definition."""
    wanted, held, seen, rows = shares(Counter(labels), min(limit, len(labels))), Counter(labels), Counter[int](), []
    for row, label in enumerate(labels):
        at, share, count = seen[label], wanted[label], held[label]
        seen[label] += 1
        if (at + 1) * share // count > at * share // count:
            rows.append(row)
    return rows


def draw_rows(labels: list[int], limit: int, seed: int) -> list[int]:
    """The rows with the lowest hashes of each class."""
    wanted = shares(Counter(labels), min(limit, len(labels)))
    ranked = sorted(range(len(labels)), key=lambda row: stable_hash(seed, f"i{row}"))
    rows = [row for label in wanted for row in [row for row in ranked if labels[row] == label][: wanted[label]]]
    return sorted(rows)


@given(labels=some.lists(some.integers(0, 2), min_size=1, max_size=40), limit=some.integers(1, 50), seed=some.integers(0, 3))
@settings(max_examples=150, deadline=None)
def test_selections_are_those_of_their_definitions(labels: list[int], limit: int, seed: int) -> None:
    whole, samples = ImageSet.of(Listed(labels)), list(Listed(labels))
    assert list(whole) == samples
    assert list(whole.limit(count=limit)) == [samples[row] for row in even_rows(labels, limit)]
    assert list(whole.limit(count=limit, seed=seed)) == [samples[row] for row in draw_rows(labels, limit, seed)]


def test_any_data_set_becomes_one_and_reads_as_before() -> None:
    found = ImageSet.of(Listed([0, 1, 2, 0]))
    check_dataset(found)
    assert found.reader() is None  # the plug-in has none, so workers have to build it
    assert torch.equal(found.load(list(found)[2], 8), torch.full((3, 8, 8), 2 / 255))


def test_a_worker_is_sent_a_few_rows_and_the_reader() -> None:
    ids = [f"c{at % 9}/{at:06d}.png" for at in range(20_000)]
    whole = ImageSet(index(ids, [at % 9 for at in range(20_000)], what="x"), [str(at) for at in range(9)], Files(Path("x")))
    sent = pickle.dumps(whole.head(32))
    assert len(sent) < 20_000
    head = pickle.loads(sent)
    assert len(head) == 20_000 and len(list(head)) == 32 and head.reader() == Files(Path("x"))
    bare = pickle.loads(pickle.dumps(ImageSet.of(Listed([0, 1, 2, 0])).head(2)))
    with pytest.raises(BadData, match="cannot be read without the data set itself"):
        bare.load(next(iter(bare)), 8)
    assert bare.read_by(Listed([0, 1, 2, 0])).load(next(iter(bare)), 8).shape == (3, 8, 8)


def test_a_million_images_take_at_most_64_mib() -> None:
    count = 50_000  # a twentieth of them
    ids = [f"n{at % 1000:08d}/n{at % 1000:08d}_{at:06d}.JPEG" for at in range(count)]
    whole = ImageSet(index(ids, [at % 1000 for at in range(count)], what="x", source=ids), ["a"] * 1000, Files(Path("x")))
    assert whole.index.nbytes * 20 < 64 * 2**20
    assert whole.limit(count=1000).index.nbytes < 2**20


def test_names_that_are_not_utf8_are_refused() -> None:
    with pytest.raises(BadData, match=r"shards: the name 'b\\udcff' is not in UTF-8; rename it"):
        index(["a", "b\udcff"], [0, 1], what="shards")
