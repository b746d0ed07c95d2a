from __future__ import annotations

from collections import Counter

import pytest
import torch

from counterfoil.parts.contracts import Dataset
from counterfoil.parts.datasets.subset import shares, take
from counterfoil.parts.datasets.tensors import ArrayDataset


def data(counts: list[int]) -> ArrayDataset:
    labels = [label for label, count in enumerate(counts) for _ in range(count)]
    return ArrayDataset(torch.arange(len(labels))[:, None, None, None].expand(-1, 3, 2, 2) / len(labels), labels)


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
    taken = take(data(counts), limit)
    found = Counter(sample.label for sample in taken)
    assert [found[label] for label in range(len(counts))] == expected
    assert len(taken) == limit == sum(found.values())


def test_shares_never_exceed_what_there_is_and_always_add_up() -> None:
    random = torch.Generator().manual_seed(0)
    for _ in range(200):
        held = Counter({label: int(torch.randint(1, 30, (), generator=random)) for label in range(7)})
        limit = int(torch.randint(1, held.total() + 1, (), generator=random))
        taken = shares(held, limit)
        assert sum(share for share, _ in taken.values()) == limit
        assert all(share <= count for share, count in taken.values())
        largest = max(share for share, _ in taken.values())
        assert all(share == count or share >= largest - 1 for share, count in taken.values())


def test_samples_are_spread_over_a_class_and_always_the_same() -> None:
    taken = take(data([100, 100]), 10)
    first = [int(sample.image_id) for sample in taken if sample.label == 0]
    assert first == [19, 39, 59, 79, 99]
    assert [sample.image_id for sample in taken] == [sample.image_id for sample in taken]


def test_a_generous_limit_takes_everything() -> None:
    whole = data([2, 3])
    assert take(whole, 5) is whole
    assert take(whole, 99) is whole


def test_a_subset_is_a_data_set() -> None:
    whole = data([5, 5])
    taken = take(whole, 4)
    assert isinstance(taken, Dataset)
    assert list(taken.classes) == ["0", "1"]
    for sample in taken:
        assert torch.equal(taken.load(sample, None), whole.load(sample, None))
