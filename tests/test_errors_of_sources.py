"""Weights that cannot be had without a network, and weights of another architecture, kind by kind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from counterfoil.core.errors import BadSpec, BadWeights
from counterfoil.parts import registry
from tests import hub

REPOSITORY = "nobody/nothing"
ON_THE_HUB = [
    ("model", f"timm:{REPOSITORY}", {}),
    ("model", "timm:test_vit.r160_in1k", {}),
    ("model", f"hf:{REPOSITORY}", {}),
    ("model", "openclip:ViT-B-32/openai", {"classes": ["boot", "bag"]}),
    ("oracle", f"clip:{REPOSITORY}", {}),
    ("oracle", "openclip:ViT-B-32/openai", {}),
    ("oracle", f"vlm:{REPOSITORY}", {}),
    ("generator", f"autoencoder:{REPOSITORY}", {}),
    ("generator", f"diffusion:{REPOSITORY}", {}),
    ("captioner", f"blip:{REPOSITORY}", {}),
    ("rewriter", f"llm:{REPOSITORY}", {}),
    ("editor", f"p2p:{REPOSITORY}", {}),
    ("editor", f"instruct:{REPOSITORY}", {}),
    ("painter", f"diffusers:{REPOSITORY}", {}),
    ("encoder", f"clip:{REPOSITORY}", {}),
    ("encoder", f"hf:{REPOSITORY}", {}),
    ("encoder", f"timm:{REPOSITORY}", {}),
    ("chat", f"vlm:{REPOSITORY}", {}),
]


@pytest.mark.parametrize(("role", "name", "options"), ON_THE_HUB, ids=lambda value: str(value).split(":")[0])
def test_without_a_network_it_says_which_file_and_where_to_put_it(role, name, options, tmp_path, monkeypatch):
    hub.offline(monkeypatch, tmp_path / "cache")
    with pytest.raises(BadWeights) as caught:
        registry.create(role, name, options)
    said = str(caught.value)
    assert "\n" not in said
    repository = said.partition(":")[0]
    assert repository == REPOSITORY or name.startswith(("openclip:", "timm:test_vit"))  # whose library knows the repository
    assert ".json" in said or ".safetensors" in said  # which file
    assert str(tmp_path / "cache") in said and f"hf download {repository}" in said  # where it goes, and how


def rename_a_weight(folder: Path, file: str) -> str:
    """Give the weights in a folder one name that the network does not have."""
    path = next(folder.rglob(file))
    state = load_file(path)
    name = sorted(state)[0]
    state["stranger.weight"] = state.pop(name)
    save_file(state, path, metadata={"format": "pt"})
    return name


@pytest.mark.parametrize("kind", ["autoencoder", "diffusion", "hf"])
def test_weights_of_another_architecture_are_named_by_their_keys(kind, tmp_path):
    if kind == "hf":
        from tests.parts.models.saved import save_classifier

        folder = save_classifier(tmp_path)
    elif kind == "diffusion":
        from tests.generators.diffusion.conftest import save_pipeline

        folder = save_pipeline(tmp_path)
    else:
        from tests.generators.conftest import save_network

        folder = save_network(tmp_path, "AutoencoderKL")
    missing = rename_a_weight(folder, "*.safetensors")
    with pytest.raises(BadWeights) as caught:
        registry.create("model" if kind == "hf" else "generator", f"{kind}:{folder}", {})
    assert "\n" not in str(caught.value)
    assert missing in str(caught.value) or "stranger.weight" in str(caught.value)


def test_weights_of_another_width_are_named_with_both_shapes(tmp_path):
    from tests.generators.conftest import save_network

    folder = save_network(tmp_path, "VQModel")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "num_vq_embeddings": 30}))
    with pytest.raises(BadWeights, match=r"another shape of quantize.embedding.weight \(24×4 for 30×4\), config") as caught:
        registry.create("generator", f"autoencoder:{folder}", {})
    assert "\n" not in str(caught.value)


def test_a_hash_without_quotes_is_a_number(tmp_path):
    from tests.parts.models import programs

    file = programs.onnx_file(tmp_path / "m.onnx")
    with pytest.raises(BadSpec, match="got 12345678; write a hash of digits in quotes"):
        registry.create("model", f"onnx:{file}", {"sha256": 12345678})
