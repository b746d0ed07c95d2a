"""A pipeline of diffusers made fast in its place: its denoiser and its decoder in a lower number format.

Everything between the networks stays as it is: latents, the scheduler's arithmetic and the texts' embeddings in float32.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from counterfoil.parts.fast import decoder
from counterfoil.parts.fast.hastened import Hastened

BY_DEVICE = "float32, and bfloat16 on a GPU that has it"
"""How parts that are made fast here by default say what they compute in."""
DENOISERS = ("unet", "transformer", "transformer_2")


class HastenedPipeline:
    """What was done to a pipeline, and how to undo it."""

    def __init__(self, pipeline: Any, kind: torch.dtype, *, device: torch.device, compiled: bool = False) -> None:
        self._networks: list[Hastened] = []
        self._vae: Any = getattr(pipeline, "vae", None)
        for name in DENOISERS:
            network = getattr(pipeline, name, None)
            if isinstance(network, nn.Module):
                self._networks.append(Hastened(network, kind, device=device, name=f"the {name}", compiled=compiled))
        if isinstance(self._vae, nn.Module):
            self._hasten_decoder(kind, device)

    @contextlib.contextmanager
    def originals(self) -> Iterator[None]:
        """The weights as they were, for those who hash them."""
        with contextlib.ExitStack() as stack:
            for network in self._networks:
                stack.enter_context(network.originals())
            yield

    def undo(self) -> None:
        """The pipeline as it was."""
        for network in self._networks:
            network.undo()
        self._networks.clear()
        if self._vae is not None:
            self._vae.__dict__.pop("decode", None)

    def _hasten_decoder(self, kind: torch.dtype, device: torch.device) -> None:
        """Rebuilt from fused layers where these are all known, else as it is in a lower format."""
        self._vae.to(device)
        fast = decoder.build(self._vae, kind) if kind == torch.bfloat16 and hasattr(self._vae, "post_quant_conv") else None
        if fast is not None:
            self._vae.decode = FusedDecode(fast)
            return
        for name in ("post_quant_conv", "decoder"):
            part = getattr(self._vae, name, None)
            if isinstance(part, nn.Module):
                self._networks.append(Hastened(part, kind, device=device, name=f"the {name}"))


class FusedDecode:
    """Stands in for an autoencoder's `decode`, and answers as that does."""

    def __init__(self, fast: decoder.FastDecoder) -> None:
        self.fast = fast

    def __call__(self, z: Tensor, return_dict: bool = True, generator: Any = None) -> Any:
        from diffusers.models.autoencoders.vae import DecoderOutput

        pictures = self.fast(z)
        return DecoderOutput(sample=pictures) if return_dict else (pictures,)
