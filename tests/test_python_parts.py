"""`python:` in every role: what a function of the user's own gives is the part, if it has what the role asks for."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pytest

from counterfoil import evaluate, store
from counterfoil.core.errors import BadPart, BadSpec, UnknownName
from counterfoil.parts import registry
from counterfoil.parts.python_functions import files
from counterfoil.protocols import fmr
from tests.sources import CHECKS
from tests.sources.own import PARTS, named
from tests.worlds import FAKES, spec

LACKING = {
    "oracle": "bind, judge; see Oracle in counterfoil.parts.contracts",
    "dataset": "classes, __len__, __iter__, load; see Dataset in counterfoil.parts.contracts",
    "captioner": "caption; see Captioner in counterfoil.parts.contracts",
    "rewriter": "rewrite; see Rewriter in counterfoil.parts.contracts",
    "editor": "size, sweep, invert, edit; see Editor in counterfoil.parts.contracts",
    "painter": "paint; see Painter in counterfoil.parts.contracts",
    "encoder": "embed_images, embed_texts; see Embedder in counterfoil.parts.contracts",
    "chat": "answer; see Chat in counterfoil.parts.contracts",
}
SOURCE = """
from tests.sources.own import Bright

class Nothing:
    pass

def whole_class():
    return Bright

def failing():
    raise ValueError("out of luck")
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(SOURCE)
    return tmp_path / "mine.py"


def test_every_role_has_it() -> None:
    assert {*PARTS, "model", "generator"} == set(registry.ROLES) == {*LACKING, "model", "generator"}


@pytest.mark.parametrize("role", PARTS)
def test_a_function_of_ones_own_makes_a_part(role: str) -> None:
    CHECKS[role](registry.create(role, named(role)))


@pytest.mark.parametrize("role", PARTS)
def test_what_it_lacks_is_named(role: str, source: Path) -> None:
    with pytest.raises(BadPart) as refused:
        registry.create(role, f"python:{source}:Nothing")
    assert str(refused.value) == f"python:{source}:Nothing: gives a Nothing without {LACKING[role]}"


@pytest.mark.parametrize("role", PARTS)
def test_a_class_is_no_object_of_it(role: str, source: Path) -> None:
    with pytest.raises(BadPart, match=r"gives the class Bright itself; give an object of it, as in Bright\(\)"):
        registry.create(role, f"python:{source}:whole_class")
    with pytest.raises(BadPart, match="the function failed with ValueError: out of luck"):
        registry.create(role, f"python:{source}:failing")


def test_a_file_without_its_kind_is_answered_with_how_to_write_it() -> None:
    with pytest.raises(UnknownName, match=r"as in 'python:mine.py:FUNCTION'"):
        registry.create("oracle", "mine.py")


def test_options_are_the_arguments() -> None:
    assert registry.create("oracle", named("oracle"), {"darkest": 0.3}).darkest == 0.3
    with pytest.raises(BadSpec, match=r"got an unexpected keyword argument 'darkst'; its options are darkest$"):
        registry.create("oracle", named("oracle"), {"darkst": 0.3})
    with pytest.raises(BadSpec, match=r"'pens'; it takes no options$"):
        registry.create("painter", named("painter"), {"pens": 3})
    dataset = registry.create("dataset", named("dataset"), {"count": 5})
    assert len(dataset) == 5 and next(iter(dataset)).source.startswith(f"{named('dataset')}[0]")


def test_a_whole_run_of_ones_own_parts(tmp_path: Path) -> None:
    run = evaluate(
        f"python:{FAKES}:TinyModel",
        named("dataset"),
        generator="brightness:",
        oracle={"name": named("oracle"), "darkest": 0.05},
        size=16,
        search={"budget": 2, "step": 0.5},
        out=tmp_path / "run",
    )
    assert run.counts["images"] == 12 and np.isfinite(run.scores["SA"].value)


def test_going_on_after_an_edit_of_the_file_is_told_and_recorded(tmp_path: Path, source: Path) -> None:
    chosen = spec(named("dataset"), oracle=f"python:{source}:Bright", generator="brightness:", search={"budget": 2, "step": 0.5})
    fmr.run(chosen, tmp_path / "run")
    before = hashlib.sha256(source.read_bytes()).hexdigest()
    told: list[str] = []
    fmr.run(chosen, tmp_path / "run", tell=told.append)
    assert not any("resumed" in line for line in told)
    source.write_text(f"{SOURCE}\n# another version\n")
    fmr.run(chosen, tmp_path / "run", tell=told.append)
    assert any(f"resumed with functions.{source}:Bright" in line for line in told)
    run = store.open_run(tmp_path / "run")
    recorded = [each["functions"][f"{source}:Bright"] for each in (run.provenance, *run.resumed)]
    assert recorded == [before, hashlib.sha256(source.read_bytes()).hexdigest()]


def test_functions_are_found_wherever_a_specification_names_them(source: Path) -> None:
    name = f"{source}:Bright"
    members = {"name": "ensemble:", "members": [f"python:{name}", {"name": "classifier:python:tests.sources.own:Bright"}]}
    found = files({"oracle": members, "models": [{"name": "lab:narrow"}, "python:absent.py:load"], "seed": 3})
    assert list(found) == [name, "tests.sources.own:Bright"]
    assert found[name] == hashlib.sha256(source.read_bytes()).hexdigest()
