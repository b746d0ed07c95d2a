"""Whole runs: what is refused before they begin, what ends them, what they keep, and how much memory they take."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import Tensor

from counterfoil import protocols, store
from counterfoil.core.errors import BadPart, BadRun, BadWeights, RunFailed, UsageError
from counterfoil.parts import registry
from counterfoil.parts.contracts import Verdicts
from counterfoil.protocols.fmr.wording import citation
from counterfoil.protocols.stages import Tables
from counterfoil.protocols.workspace import Given
from counterfoil.store import writer
from counterfoil_lab.parts import WEIGHTS
from tests.generators.small import save_run, weights_of
from tests.protocols.imagenet_d import world as squares
from tests.protocols.lance import world as pets
from tests.worlds import arrays, put_in_cache, spec, values


def test_another_specification_or_a_second_writer_is_refused_before_a_part_is_loaded(tmp_path, monkeypatch) -> None:
    chosen = spec(f"tensors:{arrays(tmp_path / 'data.npz', 6)}")
    out = tmp_path / "run"
    protocols.run(chosen, out)
    monkeypatch.setattr(registry, "create", lambda role, *rest: pytest.fail(f"{role} was loaded"))
    with pytest.raises(BadRun, match="holds a run with seed 0, now 1"):
        protocols.run(chosen.model_copy(update={"seed": 1}), out)
    with store.open_run(out).appending(), pytest.raises(BadRun, match="is writing"):
        protocols.run(chosen, out)


def test_the_command_refuses_another_specification_before_torch_is_imported(tmp_path) -> None:
    data = f"tensors:{arrays(tmp_path / 'data.npz', 6)}"
    protocols.run(spec(data), tmp_path / "run")
    (tmp_path / "other.yaml").write_text(yaml.safe_dump(values(data, seed=1)))
    without = "import sys; sys.modules['torch'] = None; from counterfoil.cli import main; main()"
    asked = ["run", "other.yaml", "--out", "run"]
    done = subprocess.run([sys.executable, "-c", without, *asked], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and "holds a run with seed 0, now 1" in done.stderr


def test_a_folder_whose_name_is_not_text_is_refused(tmp_path) -> None:
    chosen = spec(f"tensors:{arrays(tmp_path / 'data.npz', 6)}")
    with pytest.raises(BadRun, match="not text in UTF-8; choose another --out"):
        protocols.run(chosen, tmp_path / "x\udcff")


class Unbound:
    """An oracle that cannot be made ready, or gives nothing."""

    def __init__(self, bind: Callable[[], Any]) -> None:
        self.bound = bind

    def bind(self, classes: Sequence[str]) -> Any:
        return self.bound()

    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        raise AssertionError("never bound")


@pytest.mark.parametrize(
    ("bind", "kind", "complaint"),
    [
        (lambda: {}["ant"], RunFailed, "oracle given: failed with KeyError: 'ant'"),
        (lambda: None, BadPart, r"oracle given:: bind\(\) gives a NoneType without bind, judge"),
    ],
)
def test_an_oracle_that_cannot_be_bound_is_named(tmp_path, bind, kind, complaint) -> None:
    chosen = spec(f"tensors:{arrays(tmp_path / 'data.npz', 6)}", oracle="given:")
    with pytest.raises(kind, match=complaint):
        protocols.run(chosen, tmp_path / "run", given=Given({"oracle": Unbound(bind)}))


def test_staged_runs_refuse_them_too(tmp_path) -> None:
    protocols.run(squares.spec(), tmp_path / "run", given=squares.make_parts())
    with pytest.raises(BadRun, match="holds a run with seed"):  # nothing is given, and none of the names could be loaded
        protocols.run(squares.spec(seed=5), tmp_path / "run", given=Given())


@pytest.mark.parametrize("world", [squares, pets])
def test_where_workers_have_the_parts_the_driver_builds_none(tmp_path, world, monkeypatch) -> None:
    """Its stages need the names of the parts alone; what decides their results is what workers say."""
    chosen, parts = world.spec(), world.make_parts()
    protocol = protocols.get(chosen.protocol)
    monkeypatch.setattr(registry, "create", lambda role, *rest: pytest.fail(f"{role} was built"))
    data = {"dataset": parts.parts["dataset"]} if "dataset" in parts.parts else {}
    work = protocol.workspace(chosen, Given(data, elsewhere=True))
    assert not any(work.parts.values()) and work.parts.keys() == protocol.workspace(chosen, parts).parts.keys()
    own, whole = (protocol.stages(each, Tables(tmp_path)) for each in (work, protocol.workspace(chosen, parts)))
    assert [stage.name for stage in own] == [stage.name for stage in whole]


def test_a_run_without_a_single_caption_fails_and_says_why(tmp_path) -> None:
    everybody = [f"pet-{number:03d}" for number in range(99)]
    with pytest.raises(RunFailed, match=r"captioner .*: none of 4 images has a caption that can be used; the first: "):
        protocols.run(pets.spec(limit=4), tmp_path / "run", given=pets.make_parts(captioner=pets.Told(mute=everybody)))


def test_a_protocol_without_stages_says_so(tmp_path) -> None:
    with pytest.raises(UsageError, match="the protocol fmr has no stages"):
        protocols.run(spec(f"tensors:{arrays(tmp_path / 'data.npz', 6)}"), tmp_path / "run", stage="captions")


# Oracles and models of the staged protocols whose scores are no numbers: the run ends in a line that names them


class Lost(squares.SquareOracle):
    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        return Verdicts(torch.zeros(len(images), dtype=torch.int8), torch.full((len(images),), torch.nan), labels)


class Empty(pets.Leaning):
    def logits(self, images: Tensor) -> Tensor:
        return torch.full((len(images), 2), torch.nan)


def test_an_oracle_of_painted_pictures(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="oracle fake:oracle's scores are not finite"):
        protocols.run(squares.spec(), tmp_path / "run", given=squares.make_parts(oracle=Lost()))


def test_an_oracle_of_edits(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="oracle object:sure's scores are not finite"):
        protocols.run(pets.spec(limit=2), tmp_path / "run", given=pets.make_parts(oracle=Lost()))


def test_a_model_asked_about_edits(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="model python:here:Leaning: its scores are not finite"):
        protocols.run(pets.spec(limit=2), tmp_path / "run", given=pets.make_parts(model=Empty()))


# Large runs keep their images in zips, whatever the protocol


@pytest.mark.parametrize("world", [pets, squares])
def test_a_large_staged_run_packs_its_images_and_is_read_resumed_and_corrected_alike(tmp_path: Path, monkeypatch, world) -> None:
    whole = protocols.run(world.spec(), tmp_path / "files", given=world.make_parts())
    monkeypatch.setattr(writer, "PACKED_FROM", 2)
    packed = protocols.run(world.spec(), tmp_path / "zips", given=world.make_parts())
    assert list(packed.trials) == list(whole.trials)
    assert packed.results == whole.results
    named = {name for trial in packed.trials for name in (trial.clean, trial.reconstruction, trial.image) if name}
    assert named and not [name for name in named if (packed.path / name).exists()]
    images = store.Images(packed.path)
    assert all(images.at(name).read_bytes() == (whole.path / name).read_bytes() for name in named)
    tables = {path.name: path.read_bytes() for path in (packed.path / "stages").glob("*.jsonl")}
    protocols.run(world.spec(), tmp_path / "zips", given=world.make_parts())  # nothing is made again
    assert {path.name: path.read_bytes() for path in (packed.path / "stages").glob("*.jsonl")} == tables
    assert not [name for name in named if (packed.path / name).exists()]


# FMR as published with stand-ins in the places and formats of the published weights: it takes a model and data alone


NEEDED = {"preset": "paper", "model": "lab:narrow", "data": {"name": "lab:wardrobe", "count": 2}}


def test_the_preset_runs_on_the_published_formats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    put_in_cache(monkeypatch, tmp_path / "cache", WEIGHTS / "clip", "openai/clip-vit-base-patch32")
    folder, small = Path("logs/vqgan_imagenet_f16_16384"), {"ch_mult": [1, 1, 1, 1, 2], "attn_resolutions": []}
    for name in ("checkpoints", "configs"):
        (folder / name).mkdir(parents=True)
    save_run(folder / "configs", **small)
    torch.save({"state_dict": weights_of("VQModel", **small)}, folder / "checkpoints" / "last.ckpt")
    few = {**NEEDED, "search": {"budget": 1, "control": "none", "accept": "agreement"}, "force": True}
    run = protocols.run(protocols.parse(few), tmp_path / "run")
    assert run.provenance["size"] == 224
    assert "preset paper but for search.budget 1, search.accept agreement." in citation(run, run.results or {})


def test_what_is_missing_is_named_with_its_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadWeights, match=r"preset paper needs the authors' VQGAN in logs/.*last.ckpt from https://heibox"):
        protocols.run(protocols.parse(NEEDED), tmp_path / "run")


# Peak memory does not grow with the data set


ROOT = Path(__file__).parents[2]


def peak(data: Path, out: Path) -> float:
    """Peak memory in MiB of a run over `data`, in a process of its own."""
    command = [sys.executable, "-m", "tests.protocols.memory_child", data, out]
    return float(subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout)


def test_ten_times_the_images_take_the_same_memory(tmp_path):
    few = peak(arrays(tmp_path / "few.npz", 2_000, 8), tmp_path / "few")
    many = peak(arrays(tmp_path / "many.npz", 20_000, 8), tmp_path / "many")
    assert many < 1.1 * few
