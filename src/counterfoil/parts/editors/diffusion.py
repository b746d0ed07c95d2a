"""A Stable Diffusion pipeline taken apart, and its noise schedule.

Levels of noise run from 0, the noisiest, to `steps`, the clean latent. The network is called at `times[k]` on the way from
level k to level k + 1. Papers: Song, Meng and Ermon, "Denoising diffusion implicit models"; Ho, Jain and Abbeel, "Denoising
diffusion probabilistic models"; Salimans and Ho, "Progressive distillation" (prediction of the velocity).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from counterfoil.core.errors import BadPart
from counterfoil.parts import pretrained, weights
from counterfoil.parts.editors.requests import plain_tokens
from counterfoil.parts.fast import coders, dtypes
from counterfoil.parts.fast.unets import AcceleratedNetwork

Precision = pretrained.Dtype


class Diffusion(nn.Module):
    """The networks of a Stable Diffusion 1.x or 2.x pipeline, frozen.

    Latents and embeddings are float32 throughout; `precision` is what the denoiser computes in, and on a GPU the decoder too.
    None is float32 on a CPU and bfloat16 on a GPU that has it.
    """

    def __init__(self, *, unet: Any, vae: Any, text_encoder: Any, tokenizer: Any, scheduler: Mapping[str, Any]) -> None:
        super().__init__()
        self.unet: Any = unet
        self.vae: Any = vae
        self.text_encoder: Any = text_encoder
        self.tokenizer = tokenizer
        self.scheduler = dict(scheduler)
        self.precision: Precision | None = None
        self.compiled: bool = False
        self.eval().requires_grad_(False)
        self.factor = int(2 ** (len(self.vae.config.block_out_channels) - 1))  # pixels of an image along one latent's side
        self.size = int(self.unet.config.sample_size) * self.factor  # of the images the denoiser was trained on
        most = self.text_encoder.config.max_position_embeddings
        self.longest = int(min(tokenizer.model_max_length, most))  # tokens of a text, start and end included
        self._fast: AcceleratedNetwork | None = None
        self._decode: coders.FastDecoder | None = None

    @classmethod
    def load(cls, what: str, name: str, *, revision: str | None = None) -> Diffusion:
        """The networks of a pipeline in a folder or hub repository. `what` is the part, for errors: `p2p:NAME`."""
        folder, components = pretrained.open_pipeline(what, name, wanted="a Stable Diffusion pipeline", revision=revision)
        networks = {}
        for part, wanted in (("unet", "UNet2DConditionModel"), ("vae", "AutoencoderKL"), ("text_encoder", "CLIPTextModel")):
            library, kind = components.get(part, ("", "none"))
            if kind != wanted:
                raise BadPart(f"{what}: its {part} is a {kind}; Stable Diffusion 1.x and 2.x have a {wanted}")
            networks[part] = pretrained.load_network(pretrained.network_class(library, kind), folder / part)
        scheduler = pretrained.read_config(folder / "scheduler" / "scheduler_config.json")
        return cls(**networks, tokenizer=pretrained.load_tokenizer(folder / "tokenizer"), scheduler=scheduler)

    @property
    def device(self) -> torch.device:
        """The device of the networks."""
        return torch.device(next(self.unet.parameters()).device)

    def schedule(self, steps: int) -> Schedule:
        """The noise levels of a walk of `steps` steps."""
        return make_schedule(self.scheduler, steps)

    def accelerate(self, *, precision: Precision | None = None, compiled: bool = False) -> Diffusion:
        """Compute in another precision, and compile the denoiser. Results change by rounding alone."""
        self.precision, self.compiled = precision, compiled
        return self.place(self.device)

    def place(self, device: str | torch.device) -> Diffusion:
        """Move the networks to a device, in the precision and layout that suits it."""
        target = torch.device(device)
        on_card = target.type == "cuda"
        if self._fast is not None:
            self._fast.undo()
        self._fast = self._decode = None
        kind = dtypes.dtype_for(self.precision, target)
        if kind != torch.float32 or self.compiled:
            self._fast = AcceleratedNetwork(self.unet, kind, device=target, name="the denoiser", compiled=self.compiled)
        self.to(target)
        self.unet.to(memory_format=torch.channels_last if on_card else torch.contiguous_format)
        self._decode = coders.build_decoder(self.vae, kind) if on_card and kind == torch.bfloat16 else None
        return self

    @torch.no_grad()
    def encode(self, images: Tensor) -> Tensor:
        """Latents of images, without the autoencoder's noise.  # (N, 3, H, W) → (N, C, h, w)"""
        found = self.vae.encode(images.to(self.device) * 2 - 1).latent_dist.mode()
        latents: Tensor = found * self.vae.config.scaling_factor
        return latents

    @torch.no_grad()
    def decode(self, latents: Tensor) -> Tensor:
        """Images of latents.  # (N, C, h, w) → (N, 3, H, W) in [0, 1]"""
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
        """The tokens of a text without those for its start and end, however long it is."""
        return plain_tokens(self.tokenizer, text)

    def predict(self, latents: Tensor, time: int | Tensor, embeddings: Tensor) -> Tensor:
        """The denoiser's output, row by row.  # (N, C, h, w), scalar or (N,), (N, L, D) → (N, C, h, w)"""
        times = torch.as_tensor(time, device=latents.device).expand(len(latents))
        answer: Tensor = self.unet(latents, times, encoder_hidden_states=embeddings, return_dict=False)[0]
        return answer.float()

    def numbers(self) -> contextlib.AbstractContextManager[None]:
        """Keep float32 on a GPU where it was asked for; PyTorch would compute convolutions in TF32."""
        if self.precision != "float32":
            return contextlib.nullcontext()
        return dtypes.computing("float32", self.device)

    @contextlib.contextmanager
    def without_compiling(self) -> Iterator[None]:
        """The denoiser as it is, for a caller that changes its attention from step to step: it would be compiled each time."""
        with contextlib.nullcontext() if self._fast is None else self._fast.without_compiler():
            yield

    def provenance(self) -> dict[str, str]:
        parts = {"unet": self.unet, "vae": self.vae, "text_encoder": self.text_encoder}
        with contextlib.nullcontext() if self._fast is None else self._fast.originals():
            marks = {name: weights.fingerprint(part) for name, part in parts.items()}
        return {**marks, "precision": self.precision or dtypes.BY_DEVICE}


# Noise levels

PREDICTIONS = ("epsilon", "v_prediction", "sample")


@dataclass(frozen=True)
class Estimate:
    """The two parts of a noisy latent, by the network's output."""

    clean: Tensor
    noise: Tensor


@dataclass(frozen=True)
class Schedule:
    """Noise levels of a walk of some steps."""

    times: tuple[int, ...]  # the network's time for each step, noisiest first
    kept: tuple[float, ...]  # share of the signal's variance at levels 0 … steps
    prediction: str

    @property
    def steps(self) -> int:
        """Number of steps from noise to image."""
        return len(self.times)

    def estimate(self, output: Tensor, latents: Tensor, level: int) -> Estimate:
        """The two parts of latents at `level`, by the network's output for them."""
        signal, ruin = self._shares(level)
        if self.prediction == "v_prediction":
            return Estimate(signal * latents - ruin * output, signal * output + ruin * latents)
        if self.prediction == "sample":
            return Estimate(output, (latents - signal * output) / ruin)
        return Estimate(self.clean(latents, output, level), output)

    def clean(self, latents: Tensor, noise: Tensor, level: int) -> Tensor:
        """The clean latent, if this is the noise in latents at `level`."""
        signal, ruin = self._shares(level)
        return (latents - ruin * noise) / signal

    def towards(self, estimate: Estimate, level: int) -> Tensor:
        """The latents of this estimate at another level, without new noise: a DDIM step, up or down."""
        signal, ruin = self._shares(level)
        return signal * estimate.clean + ruin * estimate.noise

    def add_noise(self, clean: Tensor, noise: Tensor, level: int) -> Tensor:
        """A clean latent at some level of noise."""
        return self.towards(Estimate(clean, noise), level)

    def posterior(self, estimate: Estimate, level: int) -> tuple[Tensor, float]:
        """Mean and deviation of the DDPM step from `level` to the next."""
        here, there = self.kept[level], self.kept[level + 1]
        variance = (1 - there) / (1 - here) * (1 - here / there)
        direction = max(1 - there - variance, 0.0) ** 0.5
        mean = there**0.5 * estimate.clean + direction * estimate.noise
        return mean, max(variance, 0.0) ** 0.5

    def _shares(self, level: int) -> tuple[float, float]:
        return self.kept[level] ** 0.5, (1 - self.kept[level]) ** 0.5


def make_schedule(config: Mapping[str, Any], steps: int) -> Schedule:
    """The levels of `steps` DDIM steps for a pipeline whose scheduler has this configuration."""
    from diffusers import DDIMScheduler

    scheduler = DDIMScheduler.from_config(dict(config))
    prediction = str(scheduler.config.prediction_type)
    if prediction not in PREDICTIONS:
        raise BadPart(f"the scheduler predicts {prediction!r}; editors know {', '.join(PREDICTIONS)}")
    most = int(scheduler.config.num_train_timesteps)
    if not 1 <= steps <= most:
        raise BadPart(f"steps is a number from 1 to {most}, which the network was trained with, got {steps}")
    scheduler.set_timesteps(steps)
    # Asking for more steps than the spacing has room for can leave times beyond either end.
    times = tuple(min(max(int(time), 0), most - 1) for time in scheduler.timesteps)
    left = scheduler.alphas_cumprod.double()
    kept = [float(left[time]) for time in times] + [float(scheduler.final_alpha_cumprod)]
    if prediction == "epsilon" and kept[0] == 0:
        raise BadPart("the schedule starts from pure noise, where a prediction of the noise says nothing; it needs v_prediction")
    return Schedule(times, tuple(kept), prediction)


def expand(values: Tensor, like: Tensor) -> Tensor:
    """One value per row, shaped to multiply with rows of `like`.  # (N,) → (N, 1, 1, 1)"""
    return values.to(like).reshape(-1, *[1] * (like.dim() - 1))


def guide(unconditional: Tensor, conditional: Tensor, guidance: Tensor | float) -> Tensor:
    """Classifier-free guidance; at a guidance of 1 the conditional output."""
    scale = expand(guidance, conditional) if isinstance(guidance, Tensor) else guidance
    return unconditional + scale * (conditional - unconditional)
