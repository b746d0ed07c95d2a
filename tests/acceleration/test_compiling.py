"""What the compiler is told, and what happens when it does not work."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor

from counterfoil.core.errors import RunFailed
from counterfoil.parts.fast.compiling import Compiled
from counterfoil.parts.images import normalise


def uncompilable(work: Any, **settings: Any) -> Any:
    def fails(*given: Any) -> Any:
        raise RuntimeError("no compiler\nhere")

    return fails


def test_what_cannot_be_compiled_runs_as_it_is_and_the_log_says_so_once(monkeypatch, caplog) -> None:
    monkeypatch.setattr(torch, "compile", uncompilable)
    work = Compiled(lambda x: x + 1, name="the model")
    with caplog.at_level(logging.WARNING):
        assert work(torch.zeros(1)) == 1
        assert work(torch.ones(1)) == 2
    assert [record.message for record in caplog.records] == ["the model is not compiled and runs as it is: no compiler here"]


def test_an_error_that_is_not_the_compilers_is_raised(monkeypatch) -> None:
    monkeypatch.setattr(torch, "compile", uncompilable)

    def broken(x: Tensor) -> Tensor:
        raise ValueError("the part itself")

    with pytest.raises(ValueError, match="the part itself"):
        Compiled(broken, name="the model")(torch.zeros(1))


def test_errors_for_people_pass_through(monkeypatch) -> None:
    def compile_to(work: Any, **settings: Any) -> Any:
        def fails(*given: Any) -> Any:
            raise RunFailed("scores are not finite")

        return fails

    monkeypatch.setattr(torch, "compile", compile_to)
    with pytest.raises(RunFailed, match="not finite"):
        Compiled(lambda x: x, name="the oracle")(torch.zeros(1))


def test_the_compiler_chooses_nothing_by_the_clock(monkeypatch) -> None:
    asked = {}
    monkeypatch.setattr(torch, "compile", lambda work, **options: asked.update(options) or work)
    Compiled(len, name="the model")
    assert asked["options"] == {"deterministic": True}
    assert {*asked["options"]} <= {*torch._inductor.list_options()}


def test_what_normalises_is_compiled_without_a_word(recwarn) -> None:
    pictures, mean, std = torch.rand(2, 3, 8, 8), (0.5, 0.4, 0.3), (0.2, 0.3, 0.4)
    compiled = torch.compile(normalise, backend="eager", dynamic=False)
    assert torch.equal(compiled(pictures, mean, std), normalise(pictures, mean, std))
    assert not [each for each in recwarn if "lru_cache" in str(each.message)]
