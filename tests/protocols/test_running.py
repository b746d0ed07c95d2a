"""One run into its directory: what is refused before parts load, and what ends it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import yaml
from torch import Tensor

from counterfoil import protocols, store
from counterfoil.core.errors import BadPart, BadRun, RunFailed, UsageError
from counterfoil.parts import registry
from counterfoil.parts.contracts import Verdicts
from counterfoil.protocols.stages import Tables
from counterfoil.protocols.workspace import Given
from tests.protocols.imagenet_d import world as squares
from tests.protocols.lance import world as pets
from tests.worlds import arrays, spec, values


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
