"""The authors' code and this one, side by side: on stored numbers always, and live where their package is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch import Tensor

from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.vqgan import vqgan
from tests.generators.named_weights import named_pictures, named_weights
from tests.generators.vqgan.make_reference import FILE, authors_network, most_probable

F16: dict[str, Any] = {
    "double_z": False,
    "z_channels": 256,
    "resolution": 256,
    "in_channels": 3,
    "out_ch": 3,
    "ch": 128,
    "ch_mult": [1, 1, 2, 2, 4],
    "num_res_blocks": 2,
    "attn_resolutions": [16],
    "dropout": 0.0,
}
F8 = {**F16, "ch_mult": [1, 1, 2, 4], "attn_resolutions": [32]}
RELEASED = {
    "f16-1024": ("VQModel", {"n_embed": 1024, "embed_dim": 256, "ddconfig": F16}),
    "f16-16384": ("VQModel", {"n_embed": 16384, "embed_dim": 256, "ddconfig": F16}),
    "gumbel-f8": ("GumbelVQ", {"n_embed": 8192, "embed_dim": 256, "ddconfig": F8}),
}


def stages(generator: LatentGenerator, images: Tensor) -> dict[str, Tensor]:
    autoencoder: Any = generator.autoencoder
    with torch.no_grad():
        latents = autoencoder.latents(images * 2 - 1)
        return {
            "latents": latents,
            "indices": autoencoder.network.quantize.indices(latents),
            "decoded": autoencoder.samples(autoencoder.quantise(latents)),
        }


@pytest.mark.parametrize("kind", ["VQModel", "GumbelVQ"])
def test_stored_numbers_of_the_authors_code_come_out_again(runs: dict[str, Path], kind: str) -> None:
    expected = load_file(FILE)
    for name, values in stages(vqgan(str(runs[kind])), named_pictures(2, 16)).items():
        reference = expected[f"{kind}.{name}"]
        if name == "indices":
            assert torch.equal(values, reference)
            assert len(reference.unique()) > 20  # the pictures need many codes
        else:
            assert (values - reference).abs().max() < 5e-5


@pytest.mark.parametrize("name", list(RELEASED))
def test_checkpoints_of_the_authors_package_agree(tmp_path: Path, name: str) -> None:
    pytest.importorskip("taming.modules.diffusionmodules.model", reason="needs taming-transformers==0.0.1 to compare with")
    kind, params = RELEASED[name]
    if kind == "GumbelVQ":
        pytest.importorskip("einops", reason="the authors' Gumbel codebook needs einops")
        quantisers = pytest.importorskip("taming.modules.vqvae.quantize")
        if not hasattr(quantisers, "GumbelQuantize"):
            pytest.skip("this taming-transformers has no Gumbel codebook; their repository has it")
    network = authors_network(kind, params)
    state = named_weights(network.state_dict())
    network.load_state_dict(state)
    torch.save({"state_dict": network.state_dict(), "global_step": 1}, tmp_path / "last.ckpt")
    config = {"model": {"target": f"taming.models.vqgan.{kind}", "params": params}}
    (tmp_path / "model.yaml").write_text(yaml.safe_dump(config))

    images, generator = named_pictures(2, 64), vqgan(str(tmp_path))
    found = stages(generator, images)
    with pytest.MonkeyPatch.context() as patch, torch.no_grad():
        patch.setattr(torch.nn.functional, "gumbel_softmax", most_probable)
        latents = network.quant_conv(network.encoder(images * 2 - 1))
        codes, _, (_, _, indices) = network.quantize(latents)
        decoded = network.decoder(network.post_quant_conv(codes))
    assert generator.size == 256
    assert torch.equal(found["indices"].flatten(), indices.flatten())
    assert (found["latents"] - latents).abs().max() < 1e-4
    assert (found["decoded"] - decoded).abs().max() < 1e-4
