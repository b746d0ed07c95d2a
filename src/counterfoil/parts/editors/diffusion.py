"""A Stable Diffusion pipeline taken apart: pictures to latents and back, captions to embeddings, one call of the denoiser."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from counterfoil.parts import weights
from counterfoil.parts.editors.schedule import Schedule, make_schedule
from counterfoil.parts.fast import decoder, dtypes
from counterfoil.parts.fast.hastened import Hastened
from counterfoil.parts.fast.pipelines import BY_DEVICE

Precision = Literal["float32", "bfloat16", "float16"]
PRECISIONS: tuple[Precision, ...] = get_args(Precision)


class Diffusion(nn.Module):
    """The networks of a Stable Diffusion 1.x or 2.x pipeline, frozen.

    Latents and embeddings are float32 throughout; `precision` is what the denoiser computes in, and on a GPU the decoder too.
    None is float32 on a CPU and bfloat16 on a GPU that has it.
    """

    def __init__(
        self, *, unet: nn.Module, vae: nn.Module, text_encoder: nn.Module, tokenizer: Any, scheduler: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self.unet: Any = unet
        self.vae: Any = vae
        self.text_encoder: Any = text_encoder
        self.tokenizer = tokenizer
        self.scheduler = dict(scheduler)
        self.precision: Precision | None = None
        self.compiled: bool = False
        self.eval().requires_grad_(False)
        self._hastened: Hastened | None = None
        self._decode: decoder.FastDecoder | None = None

    @property
    def device(self) -> torch.device:
        """Where the networks are."""
        return torch.device(next(self.unet.parameters()).device)

    @property
    def size(self) -> int:
        """Side of the pictures the denoiser was trained on."""
        return int(self.unet.config.sample_size) * self.factor

    @property
    def factor(self) -> int:
        """Pixels of a picture along one latent's side."""
        return int(2 ** (len(self.vae.config.block_out_channels) - 1))

    @property
    def longest(self) -> int:
        """Tokens of a text, start and end included."""
        return int(min(self.tokenizer.model_max_length, self.text_encoder.config.max_position_embeddings))

    def schedule(self, steps: int) -> Schedule:
        """The noise levels of a walk of `steps` steps."""
        return make_schedule(self.scheduler, steps)

    def hasten(self, *, precision: Precision | None = None, compiled: bool = False) -> Diffusion:
        """Compute in another precision, and compile the denoiser. Results change by rounding alone."""
        self.precision, self.compiled = precision, compiled
        return self.place(self.device)

    def place(self, device: str | torch.device) -> Diffusion:
        """Move the networks to a device, in the precision and layout that it likes."""
        target = torch.device(device)
        on_card = target.type == "cuda"
        if self._hastened is not None:
            self._hastened.undo()
        self._hastened = self._decode = None
        kind = dtypes.dtype_for(self.precision, target)
        if kind != torch.float32 or self.compiled:
            self._hastened = Hastened(self.unet, kind, device=target, name="the denoiser", compiled=self.compiled)
        self.to(target)
        self.unet.to(memory_format=torch.channels_last if on_card else torch.contiguous_format)
        self._decode = decoder.build(self.vae, kind) if on_card and kind == torch.bfloat16 else None
        return self

    @torch.no_grad()
    def encode(self, images: Tensor) -> Tensor:
        """Latents of pictures, without the autoencoder's noise.  # (N, 3, H, W) → (N, C, h, w)"""
        found = self.vae.encode(images.to(self.device) * 2 - 1).latent_dist.mode()
        latents: Tensor = found * self.vae.config.scaling_factor
        return latents

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Pictures of latents.  # (N, C, h, w) → (N, 3, H, W) in [0, 1]"""
        codes = latents / self.vae.config.scaling_factor
        images: Tensor = self.vae.decode(codes, return_dict=False)[0] if self._decode is None else self._decode(codes)
        return (images / 2 + 0.5).clamp(0, 1)

    @torch.no_grad()
    def embed(self, texts: Sequence[str]) -> Tensor:
        """Embeddings of texts, which have to fit.  # → (N, L, D)"""
        tokens = self.tokenizer(list(texts), padding="max_length", max_length=self.longest, truncation=True, return_tensors="pt")
        embeddings: Tensor = self.text_encoder(tokens.input_ids.to(self.device))[0]
        return embeddings.float()

    def tokens(self, text: str) -> list[int]:
        """A text's tokens without those that mark its start and end, however long it is."""
        return plain_tokens(self.tokenizer, text)

    def predict(self, latents: Tensor, time: int | Tensor, embeddings: Tensor) -> Tensor:
        """The denoiser's answer, row by row.  # (N, C, h, w), scalar or (N,), (N, L, D) → (N, C, h, w)"""
        times = torch.as_tensor(time, device=latents.device).expand(len(latents))
        answer: Tensor = self.unet(latents, times, encoder_hidden_states=embeddings, return_dict=False)[0]
        return answer.float()

    def numbers(self) -> contextlib.AbstractContextManager[None]:
        """Float32 that is asked for is float32 on a GPU too, where PyTorch would compute convolutions in TF32."""
        if self.precision != "float32":
            return contextlib.nullcontext()
        return dtypes.computing("float32", self.device)

    @contextlib.contextmanager
    def uncompiled(self) -> Iterator[None]:
        """The denoiser as it is, for those who change its attention from step to step and would have it compiled each time."""
        with contextlib.nullcontext() if self._hastened is None else self._hastened.uncompiled():
            yield

    def provenance(self) -> dict[str, str]:
        """Hashes of the weights, and the precision."""
        parts = {"unet": self.unet, "vae": self.vae, "text_encoder": self.text_encoder}
        with contextlib.nullcontext() if self._hastened is None else self._hastened.originals():
            marks = {name: weights.fingerprint(part) for name, part in parts.items()}
        return {**marks, "precision": self.precision or BY_DEVICE}


def plain_tokens(tokenizer: Any, text: str) -> list[int]:
    """A text's tokens without those that mark its start and end, however long it is."""
    return [int(token) for token in tokenizer(text, add_special_tokens=False, truncation=False, verbose=False).input_ids]
