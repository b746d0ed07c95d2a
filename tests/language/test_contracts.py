"""Every captioner and rewriter of the package, by name, through the checks that authors of plug-ins get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from counterfoil import registry
from counterfoil.parts import Caption, Proposals, Sample, Wish
from counterfoil.testing import check_captioner, check_rewriter
from tests.language.small_models import encoder_decoder, llama
from tests.language.test_openai import Server, server

__all__ = ["server"]
pytestmark = pytest.mark.xdist_group("llm")


def test_captioners(tmp_path: Path) -> None:
    place = str(encoder_decoder(tmp_path))
    (tmp_path / "captions.jsonl").write_text(json.dumps({"id": "1", "caption": "a dog"}))
    few = {"least_tokens": 3, "most_tokens": 6}
    made: dict[str, dict[str, Any]] = {
        f"blip:{place}": few,
        f"hf:{place}": few,
        f"captions:{tmp_path / 'captions.jsonl'}": {},
        "captions:": {},
        "lab:blip": {},
    }
    assert {name.partition(":")[0] for name in made} == {row.kind for row in registry.listed("captioner")}
    for name, options in made.items():
        part = registry.create("captioner", name, options)
        check_captioner(part, size=64)
        json.dumps(part.provenance())


def test_rewriters(tmp_path: Path, server: Server) -> None:
    made: dict[str, dict[str, Any]] = {
        "lexicon:": {},
        f"llm:{llama(tmp_path)}": {"most_tokens": 8, "tile": 2},
        "openai:tiny": {"base_url": server.url},
        "lab:lexicon": {},
        "lab:rewriter": {"variations": 1},
    }
    assert {name.partition(":")[0] for name in made} == {row.kind for row in registry.listed("rewriter")}
    for name, options in made.items():
        part = registry.create("rewriter", name, options)
        check_rewriter(part)
        json.dumps(part.provenance())


class Forgetful:
    """Breaks both contracts: answers by what it was asked before."""

    asked = 0

    def caption(self, images: Tensor, samples: list[Sample]) -> list[Caption]:
        self.asked += 1
        return [Caption(f"caption {self.asked}") for _ in samples]

    def rewrite(self, wishes: list[Wish]) -> list[Proposals]:
        self.asked += 1
        return [Proposals((f"a dog {self.asked}",)) for _ in wishes]


def test_the_checks_can_fail() -> None:
    with pytest.raises(AssertionError, match="own picture alone"):
        check_captioner(Forgetful())
    with pytest.raises(AssertionError, match="own wish alone"):
        check_rewriter(Forgetful())
    silent = Forgetful()
    silent.rewrite = lambda wishes: [Proposals() for _ in wishes]  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="a rejection that says why not"):
        check_rewriter(silent)
