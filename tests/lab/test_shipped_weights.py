"""The weights that ship: small enough, and usable without a network."""

from __future__ import annotations

import socket

import pytest
from lab.training.measure import MEASURES

from counterfoil.parts import registry
from counterfoil_lab.checker import Checker
from counterfoil_lab.parts import CLASSIFIERS, GENERATORS, WEIGHTS

LARGEST = 60e6  # bytes of all weights
PARTS = {
    **{name: ("model", f"lab:{name}") for name in CLASSIFIERS},
    **{name: ("generator", f"lab:{name}") for name in GENERATORS},
    "clip": ("oracle", "lab:clip"),
    "diffusion": ("painter", "lab:diffusion"),
    "blip": ("captioner", "lab:blip"),
    "rewriter": ("rewriter", "lab:rewriter"),
}


def test_all_weights_together_are_within_their_limit() -> None:
    files = list(WEIGHTS.rglob("*.safetensors"))
    assert len(files) >= len(MEASURES)
    assert sum(file.stat().st_size for file in files) <= LARGEST


def test_every_model_that_ships_is_a_part_or_the_checker() -> None:
    assert {*PARTS, "attributes"} == {*MEASURES, "kl"}


@pytest.mark.parametrize("name", [*PARTS, "attributes"])
def test_models_load_without_a_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[object] = []

    def refuse(*address: object, **options: object) -> None:
        requests.append(address)
        raise OSError("there is no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert (Checker() if name == "attributes" else registry.create(*PARTS[name])) is not None
    assert not requests
