"""Every source that `counterfoil list` shows is made by its name and passes its contract check, and says what it lacks.

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
from safetensors.torch import load_file, save_file

from counterfoil.core.errors import BadSpec, BadWeights
from counterfoil.parts import registry
from counterfoil.parts.generators import style
from tests import worlds as hub
from tests.generators.small import save_network, save_pipeline
from tests.parts.models.programs import onnx_file
from tests.parts.models.saved import save_classifier
from tests.sources import CHECKS, RECIPES, VARIANTS, check, list_sources

FROM_THE_HUB = {
    *(("model", kind) for kind in ("timm", "hf", "openclip")),
    *(("encoder", kind) for kind in ("timm", "hf", "openclip", "clip")),
    *(("oracle", kind) for kind in ("clip", "openclip", "vlm")),
    *(("editor", kind) for kind in ("p2p", "instruct", "flowedit")),
    ("generator", "autoencoder"), ("generator", "diffusion"), ("captioner", "blip"), ("captioner", "hf"), ("rewriter", "llm"),
    ("painter", "diffusers"), ("chat", "vlm"),
}  # fmt: skip
REPOSITORY = "someone/something"

pytestmark = pytest.mark.xdist_group("sources")


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(style, "STYLE_SIDE", 64)  # style images are looked at in a quarter of the usual size
    with ExitStack() as opened:
        yield opened


@pytest.mark.parametrize("source", [*list_sources(), *VARIANTS], ids=" ".join)
def test_it_keeps_its_contract(source: Any, tmp_path: Path, stack: ExitStack, monkeypatch: pytest.MonkeyPatch) -> None:
    role, kind, *variant = source
    assert variant or source in RECIPES, f"tests/sources has no recipe for the {' '.join(source)}"
    if kind == "https" and shutil.which("openssl") is None:
        pytest.skip("no openssl to make a certificate with")
    (tmp_path / "made").mkdir()
    name, options = (VARIANTS if variant else RECIPES)[source](tmp_path / "made", stack)
    if source in FROM_THE_HUB:
        hub.put_in_cache(monkeypatch, tmp_path / "cache", Path(name.partition(":")[2]), REPOSITORY)
        name = f"{kind}:hf-hub:{REPOSITORY}" if kind == "openclip" else f"{kind}:{REPOSITORY}"
    assert name.partition(":")[0] == kind
    check(role, registry.create(role, name, options))


def test_no_recipe_is_left_of_a_source_that_is_gone() -> None:
    assert set(RECIPES) <= set(list_sources()), "the package is installed without some of them, or they were renamed"
    assert set(RECIPES) >= FROM_THE_HUB and {source[:2] for source in VARIANTS} <= set(RECIPES)
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

    def answer(self, images: Any, questions: Any) -> list[str]:
        return [f"a bag, one of {len(images)}" for _ in images]


@pytest.mark.parametrize(("role", "says"), [("encoder", "rows independently"), ("chat", "own image and question alone")])
def test_the_checks_of_encoders_and_chats_can_fail(role: str, says: str) -> None:
    with pytest.raises(AssertionError, match=says):
        CHECKS[role](Confused())


ABSENT = [
    *((role, kind, "nobody/nothing") for role, kind in sorted(FROM_THE_HUB) if kind not in ("openclip", "flowedit")),
    ("model", "timm", "test_vit.r160_in1k"),
    *((role, "openclip", "ViT-B-32/openai") for role in ("model", "oracle")),
]


@pytest.mark.parametrize(("role", "kind", "place"), ABSENT)
def test_without_a_network_it_says_which_file_and_where_to_put_it(role, kind, place, tmp_path, monkeypatch):
    hub.offline(monkeypatch, tmp_path / "cache")
    with pytest.raises(BadWeights) as caught:
        registry.create(role, f"{kind}:{place}", {"classes": ["boot", "bag"]} if (role, kind) == ("model", "openclip") else {})
    said = str(caught.value)
    repository = said.partition(":")[0]
    assert "\n" not in said and (repository == place or place != "nobody/nothing")  # else the library knows the repository
    assert ".json" in said or ".safetensors" in said  # which file
    assert str(tmp_path / "cache") in said and f"hf download {repository}" in said  # where it goes, and how


@pytest.mark.parametrize(
    ("role", "kind", "save"),
    [
        ("generator", "autoencoder", lambda folder: save_network(folder, "AutoencoderKL")),
        ("generator", "diffusion", save_pipeline),
        ("model", "hf", save_classifier),
    ],
)
def test_weights_of_another_architecture_are_named_by_their_keys(role, kind, save, tmp_path):
    path = next(save(tmp_path).rglob("*.safetensors"))
    state = load_file(path)
    missing = sorted(state)[0]
    save_file(
        {**{name: state[name] for name in state if name != missing}, "stranger.weight": state[missing]}, path, {"format": "pt"}
    )
    with pytest.raises(BadWeights, match=rf"({missing}|stranger\.weight)") as caught:
        registry.create(role, f"{kind}:{tmp_path}", {})
    assert "\n" not in str(caught.value)


def test_weights_of_another_width_are_named_with_both_shapes(tmp_path):
    folder = save_network(tmp_path, "VQModel")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_vq_embeddings": 30}))
    with pytest.raises(BadWeights, match=r"another shape of quantize.embedding.weight \(24×4 for 30×4\), config") as caught:
        registry.create("generator", f"autoencoder:{folder}", {})
    assert "\n" not in str(caught.value)


def test_a_hash_without_quotes_is_a_number(tmp_path):
    with pytest.raises(BadSpec, match="got 12345678; write a hash of digits in quotes"):
        registry.create("model", f"onnx:{onnx_file(tmp_path / 'm.onnx')}", {"sha256": 12345678})
