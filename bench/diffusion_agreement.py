"""How far the answers and gradients of a UNet with fused layers are from its own in float32, relative to their size."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn

from counterfoil.engine.fast import Acceleration
from counterfoil.parts.fast import unets


def agreement(unet: nn.Module, *, device: str) -> dict[str, float]:
    """Fused in float32, and plain and fused in bf16, each against the network as it is; without TF32."""
    config: Any = unet.config
    chance = torch.Generator().manual_seed(0)
    latents = torch.randn(2, config.in_channels, config.sample_size, config.sample_size, generator=chance).to(device)
    words = torch.randn(2, 8, config.cross_attention_dim, generator=chance).to(device)
    with Acceleration().computing(torch.device(device)):
        exact = _answer(unet, latents, words)
        found: dict[str, float] = {}
        for name, kind, fused in (
            ("float32 fused", torch.float32, True),
            ("bf16 plain", torch.bfloat16, False),
            ("bf16 fused", torch.bfloat16, True),
        ):
            network = nn.Module.to(copy.deepcopy(unet), dtype=kind).eval()
            replaced = unets.fuse(network) if fused else []
            both = _answer(network, latents.to(kind), words.to(kind))
            found |= {f"{name} {what}": apart(*pair) for what, *pair in zip(("answers", "gradients"), both, exact, strict=True)}
            unets.unfuse(replaced)
    return found


def _answer(network: nn.Module, latents: Tensor, words: Tensor) -> tuple[Tensor, Tensor]:
    with torch.no_grad():
        answer = network(latents, 500, encoder_hidden_states=words, return_dict=False)[0]
    leaf = latents.clone().requires_grad_()
    with torch.enable_grad():
        loss = network(leaf, 500, encoder_hidden_states=words, return_dict=False)[0].float().square().sum()
    return answer, torch.autograd.grad(loss, leaf)[0]


def apart(found: Tensor, wanted: Tensor) -> float:
    """The distance relative to the size of what is wanted."""
    return float((found.float() - wanted.float()).norm() / wanted.float().norm())
