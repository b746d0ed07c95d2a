"""Decoders rebuilt from fast layers, against the networks they were read from."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.core.errors import BadSpec
from counterfoil.parts import registry
from counterfoil.parts.fast import coders, layers
from counterfoil.parts.generators.autoencoders import VectorAutoencoder
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.masked import Mask, MaskedGenerator
from counterfoil.parts.generators.vqgan import Architecture, VqganAutoencoder, build
from tests.networks import apart, stir

pytestmark = pytest.mark.rounding


def vqgan() -> Any:
    shape = Architecture(64, 16, 16, ch=32, ch_mult=(1, 1, 2), num_res_blocks=1, resolution=32, attn_resolutions=(8,))
    return stir(build(shape))


def diffusers_vq() -> Any:
    from diffusers import VQModel

    return stir(
        VQModel(
            down_block_types=("DownEncoderBlock2D",) * 2,
            up_block_types=("UpDecoderBlock2D",) * 2,
            block_out_channels=(12, 24),
            norm_num_groups=4,
            latent_channels=16,
            vq_embed_dim=16,
            num_vq_embeddings=64,
        )
    )


def image_and_gradient(decode: Any, codes: Tensor) -> tuple[Tensor, Tensor]:
    codes = codes.clone().requires_grad_()
    images = decode(codes)
    weights = torch.randn(images.shape, generator=torch.Generator().manual_seed(1))
    return images.detach(), torch.autograd.grad((images * weights).sum(), codes)[0]


@pytest.mark.parametrize(("kind", "near"), [(torch.float32, 1e-5), (torch.bfloat16, 0.1)])
@pytest.mark.parametrize("make", [vqgan, diffusers_vq])
def test_images_and_gradients_are_those_of_the_network(make: Any, kind: torch.dtype, near: float) -> None:
    network = make()
    codes = torch.randn(2, 16, 8, 8, generator=torch.Generator().manual_seed(2))
    fast = coders.build_decoder(network, kind)
    assert fast is not None
    plain = image_and_gradient(lambda codes: network.decoder(network.post_quant_conv(codes)), codes)
    for found, wanted in zip(image_and_gradient(fast, codes), plain, strict=True):
        assert found.dtype == torch.float32
        assert apart(found, wanted) < near


def test_doubling_and_convolving_is_one_transposed_convolution() -> None:
    chance = torch.Generator().manual_seed(0)
    x, weight = torch.randn(2, 5, 4, 3, generator=chance), torch.randn(7, 5, 3, 3, generator=chance)
    wanted = F.conv2d(F.interpolate(x, scale_factor=2.0), weight, padding=1)
    assert torch.allclose(layers.Upsample(layers.upsample_weight(weight), weight)(x, None, layers.WHOLE)[0], wanted, atol=1e-5)


def test_a_network_with_an_unknown_layer_is_not_built() -> None:
    network = vqgan()
    network.decoder.up_blocks[0].resnets[0] = nn.Identity()
    network.encoder.mid_block.attentions[0].heads = 2
    for each in (network, nn.Linear(2, 2)):
        assert coders.build_decoder(each, torch.float32) is None and coders.build_encoder(each) is None


def test_a_generator_is_accelerated_and_left_as_it_was() -> None:
    generator = LatentGenerator(VqganAutoencoder(vqgan()), size=32)
    fast = generator.accelerate(torch.float32)
    assert fast is not None
    assert fast.autoencoder.decoder is not None and fast.autoencoder.encoder is not None
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(4))
    zeros = torch.zeros(2, dtype=torch.long)
    state = generator.start(images, zeros, zeros)
    assert apart(fast.start(images, zeros, zeros)["latent"], state["latent"]) < 1e-5
    with pytest.raises(BadSpec, match="images of 30 by 30 pixels"):
        fast.start(images[..., :30, :30], zeros, zeros)
    assert apart(fast.render(state), generator.render(state)) < 1e-5
    assert generator.autoencoder.decoder is generator.autoencoder.encoder is None


@pytest.mark.parametrize("name", ["lab:vqgan", "lab:kl"])
def test_the_labs_autoencoders_are_accelerated_with_their_encoders(name: str) -> None:
    generator = registry.create("generator", name)
    fast = generator.accelerate(torch.float32)
    images = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(4))
    zeros = torch.zeros(2, dtype=torch.long)
    state = generator.start(images, zeros, zeros)
    assert fast.autoencoder.encoder is not None
    assert apart(fast.start(images, zeros, zeros)["latent"], state["latent"]) < 1e-5
    assert apart(fast.render(state), generator.render(state)) < 1e-5


def test_a_masked_generator_is_accelerated_inside() -> None:
    inner = LatentGenerator(VectorAutoencoder(diffusers_vq()), size=16)
    mask = Mask(torch.rand(16, 8, 8, generator=torch.Generator().manual_seed(0)) < 0.5)
    masked = MaskedGenerator(inner, mask)
    fast = masked.accelerate(torch.float32)
    assert isinstance(fast, MaskedGenerator)
    zeros = torch.zeros(1, dtype=torch.long)
    state = masked.start(torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(4)), zeros, zeros)
    assert apart(fast.render(state), masked.render(state)) < 1e-5
