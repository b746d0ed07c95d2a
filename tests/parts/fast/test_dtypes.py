"""Precisions and dtypes: what devices of several ages get, what is refused, and what float32 means."""

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
from counterfoil.parts.fast.dtypes import check_precision, computing, dtype_for, float32, has_bf16, with_supported_precision
from tests.worlds import values

PARTS = {"model": "lab:narrow", "data": "lab:wardrobe", "generator": "lab:vqgan", "oracle": "lab:clip", "device": "cuda"}
CPU, GPU = torch.device("cpu"), torch.device("cuda")


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
    assert has_bf16("cuda:1") is there


def test_a_run_on_an_old_gpu_computes_in_float32_and_the_log_says_so(old: None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        chosen = protocols.parse_here({**PARTS, "engine": {"batch_size": 4}}).engine
    assert chosen == EngineSpec(batch_size=4, precision="float32")
    assert [record.message for record in caplog.records] == [
        "Tesla V100 (cuda) has no bf16: the run computes in float32, which takes longer"
    ]


@pytest.mark.parametrize(
    "values",
    [{**PARTS, "engine": {"precision": "bf16"}}, {**PARTS, "device": "cpu"}, {"engine": "wrong"}],
)
def test_what_is_chosen_already_or_not_for_a_gpu_is_left(old: None, values: dict[str, object]) -> None:
    assert with_supported_precision(values) == values


def test_a_protocol_whose_parts_choose_their_dtype_is_left(old: None, caplog: pytest.LogCaptureFixture) -> None:
    parts = dict.fromkeys(("model", "data", "captioner", "editor", "encoder", "oracle"), "x:y")
    assert protocols.parse_here({"protocol": "lance", "device": "cuda", **parts}).protocol == "lance"
    assert not caplog.records


def test_a_newer_gpu_and_one_that_is_not_here_get_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert protocols.parse_here(PARTS).engine.precision == "bf16"

    def no_such(device: object) -> tuple[int, int]:
        raise RuntimeError("invalid device ordinal")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", no_such)
    assert protocols.parse_here({**PARTS, "device": "cuda:9"}).engine.precision == "bf16"


def test_bf16_that_is_asked_for_on_an_old_gpu_is_refused_in_a_line(old: None) -> None:
    with pytest.raises(BadSpec, match=r"^Tesla V100 \(cuda\) has no bf16 and would only emulate it, slowly; ask for float32"):
        check_precision("bf16", GPU)
    with pytest.raises(BadSpec, match="has no bf16"):
        dtype_for("bfloat16", GPU)
    check_precision("float32", GPU)


def test_networks_compute_in_what_is_asked_for_or_in_what_the_device_has(old: None, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert dtype_for(None, GPU) == torch.float32
    assert len(caplog.records) == 1
    assert dtype_for("float16", GPU) == torch.float16
    assert dtype_for(None, torch.device("cpu")) == torch.float32
    assert dtype_for("bfloat16", torch.device("cpu")) == torch.bfloat16


def test_networks_compute_in_bf16_on_a_gpu_that_has_it(old: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert dtype_for(None, GPU) == torch.bfloat16


@pytest.mark.parametrize("command", ["run", "doctor", "doctor --time"])
def test_a_precision_the_device_does_not_support_is_refused_before_anything_is_loaded(
    old: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str
) -> None:
    monkeypatch.setattr(registry, "create", lambda role, *rest: pytest.fail(f"loads the {role}"))
    monkeypatch.setattr(torch, "zeros", lambda count, *, device: device)  # as if the GPU were there
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump(values("tensors:none.npz", device="cuda", engine={"precision": "bf16"})))
    monkeypatch.chdir(tmp_path)
    refused = CliRunner().invoke(app, [*command.split(), str(path)]).exception
    assert isinstance(refused, BadSpec) and "has no bf16" in str(refused)


def test_there_is_no_other_precision() -> None:
    with pytest.raises(BadSpec, match="precision"):
        protocols.parse({**PARTS, "engine": {"precision": "tf32"}})


def test_precision_is_autocast_and_only_where_it_is_wanted() -> None:
    with computing("bf16", CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.bfloat16
    with computing("bf16", CPU, low=False):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    with computing("float32", CPU):
        assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32


def flags() -> tuple[bool, ...]:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    return matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic


def set_flags(*values: bool) -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    matmul.allow_tf32, cudnn.allow_tf32, cudnn.benchmark, cudnn.deterministic = values


@pytest.mark.parametrize(("precision", "tf32"), [("float32", False), ("bf16", True)])
def test_on_a_gpu_no_kernel_is_chosen_by_trying_it_out_and_float32_means_float32(precision, tf32) -> None:
    before, callers = flags(), (not tf32, True, True, tf32)
    set_flags(*callers)
    try:
        with computing(precision, GPU, low=False):
            assert flags() == (tf32, tf32, False, not tf32)
        assert flags() == callers
    finally:
        set_flags(*before)


def test_codes_are_chosen_in_real_float32_whatever_surrounds_them() -> None:
    before = flags()
    set_flags(True, True, False, False)
    try:
        with computing("bf16", GPU, low=False), float32(GPU):
            assert flags() == (False, False, False, True)
        with computing("bf16", CPU), float32(CPU):
            assert (torch.ones(2, 2) @ torch.ones(2, 2)).dtype == torch.float32
    finally:
        set_flags(*before)


@pytest.mark.parametrize(
    ("machine", "avx512", "amx", "arm", "told"),
    [
        ("x86_64", True, False, False, False),
        ("x86_64", False, True, False, False),
        ("x86_64", False, False, True, True),  # AVX-512 alone: oneDNN says yes and imitates
        ("aarch64", False, False, True, False),
        ("aarch64", False, False, False, True),
    ],
)
def test_bf16_is_told_of_where_a_processor_only_imitates_it(monkeypatch, caplog, machine, avx512, amx, arm, told) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: avx512)
    monkeypatch.setattr(torch.cpu, "_is_amx_tile_supported", lambda: amx)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: arm)
    with caplog.at_level(logging.WARNING):
        check_precision("bf16", CPU)
    assert [record.message for record in caplog.records] == (["this CPU emulates bf16; float32 is faster"] if told else [])
