"""What assembling a run fills in: the generator's own step."""

from __future__ import annotations

import pytest

from counterfoil import protocols
from counterfoil.core.spec import FmrSpec
from counterfoil.parts import registry
from counterfoil.parts.contracts import Generator
from counterfoil.protocols.assembly import Given, assemble, with_step
from tests.fakes import CommandedOracle, TinyModel
from tests.worlds import arrays

PARTS = {"model": "given:", "oracle": "given:"}
STEPS = {"pixels:": 0.002, "transforms:": 0.1, "lab:vqgan": 0.03, "reconstruct:lab:vqgan": 0.002}


def spec(**values) -> FmrSpec:
    return protocols.parse({**PARTS, "data": "folder:photos", "generator": "given:", **values})


@pytest.mark.parametrize(("name", "step"), STEPS.items())
def test_a_generator_says_its_own_step(name: str, step: float) -> None:
    generator: Generator = registry.create("generator", name)
    assert with_step(spec(), generator).search.step == step
    assert with_step(spec(search={"step": 0.5}), generator).search.step == 0.5


def test_a_run_records_the_step_it_takes(tmp_path) -> None:
    asked = spec(data=f"tensors:{arrays(tmp_path / 'data.npz', 8)}", generator="transforms:")
    assembly = assemble(asked, Given({"model": TinyModel(), "oracle": CommandedOracle()}))
    assert assembly.spec.search.step == assembly.engine().step_size == 0.1
