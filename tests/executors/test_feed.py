"""Samples come and go; the engine gets each once, however often it was given out."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest
import torch
from torch import Tensor

from counterfoil.core.errors import BadImage
from counterfoil.parts.contracts import Sample
from counterfoil.protocols.ray.feed import Feed
from counterfoil.protocols.workspace import Source, Workspace

X, Y, Z, BAD = (Sample(name, 0, f"{name}.png") for name in ("x", "y", "z", "bad"))


def load(sample: Sample, size: int) -> Tensor:
    if sample == BAD:
        raise BadImage("bad.png: not a picture")
    return torch.zeros(3, size, size)


def feed() -> tuple[Feed, list[Sample]]:
    """A feed, and the samples it could not read."""
    bad: list[Sample] = []
    made = SimpleNamespace(dataset=SimpleNamespace(load=load), size=4, source=lambda sample, image: Source(sample, image, 0))
    return Feed(cast(Workspace, made), lambda sample, problem: bad.append(sample), tile=2), bad


def taken(source: Feed) -> list[str]:
    """What the engine gets until there is nothing for the moment."""
    return [found.sample.image_id for found in iter(source.__next__, None) if found is not None]


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterfoil.protocols.ray.feed.PATIENCE", 0.0)


def test_what_was_dropped_and_given_again_comes_once() -> None:
    source, _ = feed()
    source.put([X, Y])
    source.drop(["x"])
    source.put([X])
    assert taken(source) == ["x", "y"]


def test_what_was_dropped_does_not_come() -> None:
    source, _ = feed()
    source.put([X, Y])
    source.drop(["x"])
    assert taken(source) == ["y"]
    source.put([X])
    assert taken(source) == ["x"]


def test_what_the_engine_has_is_not_given_to_it_again_before_it_is_through() -> None:
    source, _ = feed()
    source.put([X])
    assert taken(source) == ["x"]
    source.drop(["x"])  # too late
    source.put([X, Y])
    assert taken(source) == ["y"]
    source.through()
    source.finished("x")
    source.put([X])
    assert taken(source) == ["x"]


def test_what_cannot_be_read_is_told_each_time() -> None:
    source, bad = feed()
    for _ in range(2):
        source.put([BAD, X])
        taken(source)
    assert bad == [BAD, BAD]


def test_images_too_few_for_a_tile_wait_for_others_while_the_engine_has_something_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("counterfoil.protocols.ray.feed.PATIENCE", 1e9)
    source, _ = feed()
    source.put([X])
    assert taken(source) == ["x"]  # it had nothing
    source.put([Y])
    assert taken(source) == []
    source.put([Z])
    assert taken(source) == ["y", "z"]
    source.put([X])
    monkeypatch.setattr("counterfoil.protocols.ray.feed.PATIENCE", 0.0)  # it has waited long enough
    source.through()
    source.finished("x")
    source.put([X])
    assert taken(source) == ["x"]
