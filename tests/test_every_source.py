"""Every source that `counterfoil list` shows is made by its name and passes its contract check.

What comes from a hub is made from small things saved in the hub's own layout, and named as the hub names it, without a network.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from counterfoil.parts import registry
from tests import hub
from tests.sources import CHECKS, RECIPES, list_sources

FROM_THE_HUB = {
    ("model", "timm"),
    ("model", "hf"),
    ("model", "openclip"),
    ("generator", "autoencoder"),
    ("generator", "diffusion"),
    ("oracle", "clip"),
    ("oracle", "openclip"),
    ("oracle", "vlm"),
    ("captioner", "blip"),
    ("captioner", "hf"),
    ("rewriter", "llm"),
    ("editor", "p2p"),
    ("editor", "instruct"),
    ("editor", "flowedit"),
    ("painter", "diffusers"),
    ("encoder", "clip"),
    ("encoder", "openclip"),
    ("encoder", "hf"),
    ("encoder", "timm"),
    ("chat", "vlm"),
}
REPOSITORY = "someone/something"

pytestmark = pytest.mark.xdist_group("sources")


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    from counterfoil.parts.generators import style

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(style, "STYLE_SIDE", 64)  # style images are looked at in a quarter of the usual size
    with ExitStack() as opened:
        yield opened


@pytest.mark.parametrize("source", list_sources(), ids=" ".join)
def test_it_keeps_its_contract(
    source: tuple[str, str], tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert source in RECIPES, f"tests/sources has no recipe for the {' '.join(source)}"
    role, kind = source
    if kind == "https" and shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    (tmp_path / "made").mkdir()
    name, options = RECIPES[source](tmp_path / "made", stack)
    if source in FROM_THE_HUB:
        name = cache_part(name, tmp_path / "cache", monkeypatch)
    assert name.partition(":")[0] == kind
    part = registry.create(role, name, options)
    CHECKS[role](part)
    json.dumps(part.provenance() if hasattr(part, "provenance") else {})


def cache_part(name: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The part's folder as a repository in the hub's cache, and its name there."""
    kind, _, folder = name.partition(":")
    hub.put_in_cache(monkeypatch, cache, Path(folder), REPOSITORY)
    return f"{kind}:hf-hub:{REPOSITORY}" if kind == "openclip" else f"{kind}:{REPOSITORY}"


def test_no_recipe_is_left_of_a_source_that_is_gone() -> None:
    assert set(RECIPES) <= set(list_sources()), "the package is installed without some of them, or they were renamed"
    assert set(RECIPES) >= FROM_THE_HUB


def test_every_role_has_a_check() -> None:
    assert set(CHECKS) == set(registry.ROLES)


@pytest.mark.parametrize("role", registry.ROLES)
def test_every_source_says_what_it_is(role: str) -> None:
    for part in registry.list_parts(role):
        assert part.summary.endswith("."), f"{role} {part.kind}: the first line of its documentation is a sentence"
        assert 20 < len(part.summary) <= 130


class Confused:
    """Breaks the contracts of encoders and chats: what it says of an image depends on the other images of the batch."""

    preprocessing, pairwise = None, False

    def embed_images(self, images: Any) -> Any:
        return images.flatten(1)[:, :8] + images.flatten(1)[0, :1]

    def embed_texts(self, texts: Any) -> Any:
        raise NotImplementedError

    def logits(self, similarity: Any) -> Any:
        return similarity

    def to(self, device: Any) -> Any:
        return self

    def provenance(self) -> dict[str, str]:
        return {}

    def answer(self, images: Any, questions: Any) -> list[str]:
        return [f"a bag, one of {len(images)}" for _ in images]


@pytest.mark.parametrize(("role", "says"), [("encoder", "rows independently"), ("chat", "own image and question alone")])
def test_the_checks_of_encoders_and_chats_can_fail(role: str, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        CHECKS[role](Confused())
