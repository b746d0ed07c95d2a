"""The weights that ship: small enough, usable without a network, and those that the cards speak of."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from counterfoil.lab.cards import card
from counterfoil.lab.loading import PARTS, load
from counterfoil.lab.measure import MEASURES, WORDS_ALONE
from counterfoil.lab.measures.record import FILES, Record
from counterfoil.lab.places import WEIGHTS
from counterfoil.parts.weights import file_sha256

LARGEST = 60e6  # bytes of all weights


def test_all_weights_together_are_within_their_limit() -> None:
    files = list(WEIGHTS.rglob("*.safetensors"))
    assert len(files) >= len(MEASURES)
    assert sum(file.stat().st_size for file in files) <= LARGEST


def test_every_model_has_a_way_to_be_loaded() -> None:
    assert {*PARTS, "attributes"} == {*MEASURES, "kl"}


@pytest.mark.xdist_group("lab weights")
@pytest.mark.parametrize("name", [*PARTS, "attributes"])
def test_models_load_without_a_network(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []

    def refuse(*address: object, **options: object) -> None:
        asked.append(address)
        raise OSError("there is no network in this test")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    assert load(name) is not None
    assert not asked


def kept() -> list[Path]:
    """Every file of readings that ships."""
    return [path for name in MEASURES for file in FILES.values() if (path := WEIGHTS / name / file).is_file()]


@pytest.mark.parametrize("path", kept(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_readings_are_of_the_weights_that_ship(path: Path) -> None:
    record = Record.read(path)
    assert FILES[record.split] == path.name
    own = {file.relative_to(WEIGHTS).as_posix() for file in path.parent.rglob("*.safetensors")}
    assert own <= set(record.weights)
    assert record.weights == {file: file_sha256(WEIGHTS / file) for file in record.weights}


@pytest.mark.parametrize("name", MEASURES)
def test_cards_say_what_was_kept(name: str) -> None:
    folder = WEIGHTS / name
    assert (folder / "README.md").read_text(encoding="utf-8") == card(name, folder)
    missing = [file for split, file in FILES.items() if not (folder / file).is_file()]
    assert missing == ([FILES["whole"]] if name in WORDS_ALONE else [])
    readings = json.loads((folder / "timed.json").read_text(encoding="utf-8"))["readings"]
    assert readings[0]["name"] == "loading"
