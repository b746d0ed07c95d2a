"""GPUs of several ages, faked: what is chosen for them, and what is refused."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
import yaml
from typer.testing import CliRunner

from counterfoil import protocols
from counterfoil.cli.app import app
from counterfoil.core.errors import BadSpec
from counterfoil.core.spec import EngineSpec
from counterfoil.parts import registry
from counterfoil.parts.fast import cards
from counterfoil.parts.fast.settings import check_precision
from tests.worlds import values

PARTS = {"model": "lab:narrow", "data": "lab:wardrobe", "generator": "lab:vqgan", "oracle": "lab:clip", "device": "cuda"}
CARD = torch.device("cuda")


@pytest.fixture
def old(monkeypatch: pytest.MonkeyPatch) -> None:
    """A V100."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")


@pytest.mark.parametrize(("capability", "there"), [((7, 5), False), ((8, 0), True), ((9, 0), True)])
def test_bf16_came_with_compute_capability_8(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], there: bool) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert cards.has_bf16("cuda:1") is there


def test_a_run_on_an_old_card_computes_in_float32_and_the_log_says_so(old: None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert protocols.parse(cards.suited({**PARTS, "engine": {"tile": 4}})).engine == EngineSpec(tile=4, precision="float32")
    assert [record.message for record in caplog.records] == [
        "Tesla V100 (cuda) has no bf16: the run computes in float32, which takes longer"
    ]


@pytest.mark.parametrize(
    "values",
    [{**PARTS, "engine": {"precision": "bf16"}}, {**PARTS, "device": "cpu"}, {**PARTS, "protocol": "lance"}, {"engine": "wrong"}],
)
def test_what_is_chosen_already_or_not_for_a_card_is_left(old: None, values: dict[str, object]) -> None:
    assert cards.suited(values) == values


def test_a_newer_card_and_one_that_is_not_here_get_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert protocols.parse(cards.suited(PARTS)).engine.precision == "bf16"

    def no_such(device: object) -> tuple[int, int]:
        raise RuntimeError("invalid device ordinal")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", no_such)
    assert protocols.parse(cards.suited({**PARTS, "device": "cuda:9"})).engine.precision == "bf16"


def test_bf16_that_is_asked_for_on_an_old_card_is_refused_in_a_line(old: None) -> None:
    with pytest.raises(BadSpec, match=r"^Tesla V100 \(cuda\) has no bf16 and would only imitate it, slowly; ask for float32"):
        check_precision("bf16", CARD)
    with pytest.raises(BadSpec, match="has no bf16"):
        cards.kind("bfloat16", CARD)
    check_precision("float32", CARD)


def test_tf32_that_an_old_card_has_not_is_told_of(old: None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        check_precision("tf32", CARD)
    assert [record.message for record in caplog.records] == ["this GPU has no TF32: products are computed in float32"]


def test_networks_compute_in_what_is_asked_for_or_in_what_the_device_has(old: None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert cards.kind(None, CARD) == torch.float32
    assert len(caplog.records) == 1
    assert cards.kind("float16", CARD) == torch.float16
    assert cards.kind(None, torch.device("cpu")) == torch.float32
    assert cards.kind("bfloat16", torch.device("cpu")) == torch.bfloat16


def test_networks_compute_in_bf16_on_a_card_that_has_it(old: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert cards.kind(None, CARD) == torch.bfloat16


@pytest.mark.parametrize("command", ["run", "doctor", "bench"])
def test_a_format_that_the_device_has_not_is_refused_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    monkeypatch.setattr(registry, "create", lambda role, *rest: pytest.fail(f"loads the {role}"))
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(values(f"tensors:{tmp_path / 'none.npz'}", engine={"precision": "tf32"})))
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, [command, str(path)]).exception
    assert isinstance(refused, BadSpec) and "tf32 is a number format of GPUs" in str(refused)
