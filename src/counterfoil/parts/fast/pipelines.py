"""A pipeline of diffusers on a device, with denoiser and decoder made fast there.

Latents, the scheduler's arithmetic and the texts' embeddings stay in float32.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from counterfoil.parts import weights
from counterfoil.parts.fast import coders, dtypes
from counterfoil.parts.fast.unets import AcceleratedNetwork

DENOISERS = ("unet", "transformer", "transformer_2")


class PlacedPipeline:
    """A pipeline on a device.

    Without `dtype` networks compute in float32 on a CPU, and in bfloat16 on a GPU that has it.
    """

    def __init__(self, pipeline: Any, dtype: str | None = None, *, compiled: bool = False) -> None:
        self.pipeline = pipeline
        self.takes = dict(inspect.signature(pipeline.__call__).parameters)  # the arguments of a call, by name
        self.dtype, self.compiled = dtype, compiled
        self._networks: list[AcceleratedNetwork] = []
        pipeline.set_progress_bar_config(disable=True)

    def __call__(self, **settings: Any) -> Any:
        """Call the pipeline; float32 is float32 only where it was asked for."""
        with dtypes.computing("float32" if self.dtype == "float32" else "bf16", self.device, low=False):
            return self.pipeline(output_type="pt", **settings)

    @property
    def device(self) -> torch.device:
        """The device of the networks."""
        return torch.device(self.pipeline.device)

    def place(self, device: str | torch.device) -> None:
        """Move the networks to a device."""
        target = torch.device(device)
        self.undo()
        dtype = dtypes.dtype_for(self.dtype, target)
        if target.type == "cuda" and dtype != torch.float32:
            self.accelerate(dtype, target)
        self.pipeline.to(target)

    def accelerate(self, dtype: torch.dtype, device: torch.device) -> None:
        """Make denoiser and decoder fast; a decoder is rebuilt from fused layers where these are all known."""
        vae = getattr(self.pipeline, "vae", None)
        fast = None
        if isinstance(vae, nn.Module):
            vae.to(device)
            fast = coders.build_decoder(vae, dtype) if dtype == torch.bfloat16 else None
        parts = [(self.pipeline, name) for name in DENOISERS]
        if fast is not None:
            vae.decode = FusedDecode(fast)  # type: ignore[union-attr]
        else:
            parts += [(vae, "post_quant_conv"), (vae, "decoder")]
        for owner, name in parts:
            part, compiled = getattr(owner, name, None), self.compiled and name in DENOISERS
            if isinstance(part, nn.Module):
                self._networks.append(AcceleratedNetwork(part, dtype, device=device, name=f"the {name}", compiled=compiled))

    def undo(self) -> None:
        """Leave the pipeline as it was."""
        for network in self._networks:
            network.undo()
        self._networks.clear()
        if (vae := getattr(self.pipeline, "vae", None)) is not None:
            vae.__dict__.pop("decode", None)

    @contextlib.contextmanager
    def originals(self) -> Iterator[None]:
        """The weights as they were, for those who hash them."""
        with contextlib.ExitStack() as stack:
            for network in self._networks:
                stack.enter_context(network.originals())
            yield

    def provenance(self) -> dict[str, str]:
        import diffusers

        networks = {name: part for name, part in self.pipeline.components.items() if isinstance(part, nn.Module)}
        with self.originals():
            hashes = {f"weights {name}": weights.fingerprint(part) for name, part in sorted(networks.items())}
        return {
            "library": f"diffusers {diffusers.__version__}",
            "pipeline": type(self.pipeline).__name__,
            "scheduler": type(self.pipeline.scheduler).__name__,
            "precision": self.dtype or dtypes.BY_DEVICE,
            **hashes,
        }


class FusedDecode:
    """Stands in for an autoencoder's `decode`, and answers as that does."""

    def __init__(self, fast: coders.FastDecoder) -> None:
        self.fast = fast

    def __call__(self, z: Tensor, return_dict: bool = True, generator: Any = None) -> Any:
        from diffusers.models.autoencoders.vae import DecoderOutput

        images = self.fast(z)
        return DecoderOutput(sample=images) if return_dict else (images,)
