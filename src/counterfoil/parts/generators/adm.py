"""OpenAI's diffusion releases: checkpoints of Improved DDPM (2021) and ADM (guided diffusion, 2021) as generators.

A set of flags is written as in the releases' instructions, `--image_size 64 --num_channels 192 …`, or as a mapping of the
same names. Flags that only concern training or sampling are known and left aside. Released checkpoints are known by
their file names. The network's layers are named as in the checkpoints, so that weights load by name.
"""

from __future__ import annotations

import math
import shlex
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.core.errors import BadSpec, BadWeights
from counterfoil.parts import weights
from counterfoil.parts.generators.diffusion import (
    Denoiser,
    Denoising,
    DiffusionGenerator,
    Gradient,
    Noising,
    Process,
    class_names,
)
from counterfoil.parts.registry import build_options

IMAGENET = 1000  # classes

MULTIPLES = {
    512: (0.5, 1, 1, 2, 2, 4, 4),
    256: (1, 1, 2, 2, 4, 4),
    128: (1, 1, 2, 3, 4),
    64: (1, 2, 3, 4),
    32: (1, 2, 2, 2),
}
"""Channels at each resolution as multiples of `num_channels`, by image side."""

ASIDE = frozenset(
    {"batch_size", "classifier_scale", "dropout", "ema_rate", "lr", "microbatch", "num_samples", "rescale_learned_sigmas"}
    | {"schedule_sampler", "sigma_small", "timestep_respacing", "use_checkpoint", "use_ddim", "use_fp16", "use_kl"}
)
"""Flags that do not change what the network computes."""


@dataclass(frozen=True)
class Flags:
    """The flags that decide the network and its noise. Defaults are those of Improved DDPM, which suit every release."""

    image_size: int = 64
    num_channels: int = 128
    num_res_blocks: int = 2
    num_heads: int = 4
    num_heads_upsample: int = -1
    num_head_channels: int = -1
    attention_resolutions: str = "16,8"
    channel_mult: str = ""
    class_cond: bool = False
    learn_sigma: bool = False
    use_scale_shift_norm: bool = True
    resblock_updown: bool = False
    use_new_attention_order: bool = False
    diffusion_steps: int = 1000
    noise_schedule: str = "linear"
    predict_xstart: bool = False
    rescale_timesteps: bool = True  # only matters where diffusion_steps is not 1000

    @property
    def multiples(self) -> tuple[float, ...]:
        """Channels at each resolution, the finest first, as multiples of `num_channels`."""
        if self.channel_mult:
            return tuple(float(multiple) for multiple in self.channel_mult.split(","))
        if self.image_size not in MULTIPLES:
            raise BadSpec(
                f"image_size {self.image_size}: give channel_mult too; only {', '.join(map(str, MULTIPLES))} have a usual one"
            )
        return MULTIPLES[self.image_size]

    @property
    def attended(self) -> frozenset[int]:
        """The factors of downsampling at which there is attention."""
        return frozenset(self.image_size // int(side) for side in self.attention_resolutions.split(","))

    def heads(self, width: int, *, up: bool = False) -> int:
        """Attention heads in a layer of `width` channels."""
        if self.num_head_channels != -1:
            return width // self.num_head_channels
        return self.num_heads_upsample if up and self.num_heads_upsample != -1 else self.num_heads


_IMAGENET = (
    "--attention_resolutions 32,16,8 --num_channels 256 --num_res_blocks 2 --resblock_updown True --learn_sigma True "
    "--diffusion_steps 1000 --noise_schedule linear --use_scale_shift_norm True"
)
_ADM_256 = f"{_IMAGENET} --image_size 256 --num_head_channels 64"
_COSINE = "--num_res_blocks 3 --learn_sigma True --diffusion_steps 4000 --noise_schedule cosine"
_BEDROOM = (
    "--image_size 256 --num_channels 128 --num_res_blocks 2 --num_heads 1 --learn_sigma True --use_scale_shift_norm False "
    "--attention_resolutions 16 --diffusion_steps 1000 --noise_schedule linear"
)
RELEASED = {
    "64x64_diffusion": "--attention_resolutions 32,16,8 --class_cond True --image_size 64 --learn_sigma True "
    "--noise_schedule cosine --num_channels 192 --num_head_channels 64 --num_res_blocks 3 --resblock_updown True "
    "--use_new_attention_order True",
    "128x128_diffusion": f"{_IMAGENET} --image_size 128 --class_cond True --num_heads 4",
    "256x256_diffusion": f"{_ADM_256} --class_cond True",
    "256x256_diffusion_uncond": _ADM_256,
    "512x512_diffusion": f"{_IMAGENET} --image_size 512 --num_head_channels 64 --class_cond True",
    "lsun_bedroom": _ADM_256,
    "lsun_cat": _ADM_256,
    "lsun_horse": _ADM_256,
    "lsun_horse_nodropout": _ADM_256,
    "imagenet64_uncond_100M_1500K": f"--image_size 64 --num_channels 128 {_COSINE}",
    "imagenet64_uncond_vlb_100M_1500K": f"--image_size 64 --num_channels 128 {_COSINE}",
    "imagenet64_cond_270M_250K": f"--image_size 64 --num_channels 192 {_COSINE} --class_cond True --rescale_timesteps False",
    "cifar10_uncond_50M_500K": f"--image_size 32 --num_channels 128 {_COSINE}",
    "cifar10_uncond_vlb_50M_500K": f"--image_size 32 --num_channels 128 {_COSINE}",
    "lsun_uncond_100M_1200K_bs128": f"{_BEDROOM} --rescale_timesteps False",
    "lsun_uncond_100M_2400K_bs64": f"{_BEDROOM} --rescale_timesteps False",
}
"""The releases' flags, by the names of their files."""


def read_flags(given: str | Mapping[str, Any] | None, *, file: Path) -> Flags:
    """The flags given, or those released for a checkpoint of that name."""
    if given is None:
        stem = file.name.removesuffix(file.suffix)
        if stem not in RELEASED:
            raise BadSpec(f"{file}: not named like a released checkpoint, so its flags are not known; give flags")
        given = RELEASED[stem]
    values = given if isinstance(given, Mapping) else _parse(given)
    known = {field.name: type(field.default) for field in fields(Flags)}
    chosen = {name: value for name, value in values.items() if name not in ASIDE}
    unknown = next((name for name in chosen if name not in known), None)
    if unknown is not None:
        raise BadSpec(f"flags: no flag {unknown!r}; flags are {', '.join(known)}")
    listed = {name: value if isinstance(value, list | tuple) else [value] for name, value in chosen.items() if known[name] is str}
    try:
        found: Flags = build_options(Flags, {**chosen, **{name: ",".join(map(str, value)) for name, value in listed.items()}})
    except ValueError as error:
        raise BadSpec(f"flags: {error}") from None
    _check_flags(found)
    return found


def _parse(text: str) -> dict[str, str]:
    words = shlex.split(text.replace("=", " "))
    if len(words) % 2 or any(not word.startswith("--") for word in words[::2]):
        raise BadSpec(f"flags={text!r}: write them as '--image_size 64 --num_channels 128', each with its value")
    return {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}


def _check_flags(found: Flags) -> None:
    if found.noise_schedule not in ("linear", "cosine"):
        raise BadSpec(f"flags: noise_schedule is linear or cosine, got {found.noise_schedule!r}")
    try:
        widths = [int(multiple * found.num_channels) for multiple in found.multiples]
        attended = found.attended
    except ValueError:
        raise BadSpec("flags: channel_mult and attention_resolutions are numbers with commas between, as in 32,16,8") from None
    uneven = next((width for width in widths if width < 1 or width % 32), None)
    if uneven is not None:
        raise BadSpec(f"flags: num_channels × channel_mult gives {uneven} channels; it has to be a multiple of 32")
    for factor in (2**level for level in range(len(widths))):
        width = widths[factor.bit_length() - 1]
        if factor in attended and (found.heads(width) < 1 or width % found.heads(width)):
            raise BadSpec(f"flags: {width} channels cannot be shared among {found.heads(width)} attention heads")


class AdmUNet(nn.Module):
    """Noisy images and times to guesses of the noise."""

    def __init__(self, flags: Flags, *, classes: int | None) -> None:
        super().__init__()
        self.width = flags.num_channels
        embedding = 4 * self.width
        widths = [int(multiple * self.width) for multiple in flags.multiples]
        self.time_embed = nn.Sequential(nn.Linear(self.width, embedding), nn.SiLU(), nn.Linear(embedding, embedding))
        self.label_emb = None if classes is None else nn.Embedding(classes, embedding)

        def residual(inputs: int, outputs: int, *, resample: str = "") -> TimedResidual:
            return TimedResidual(inputs, outputs, embedding=embedding, modulates=flags.use_scale_shift_norm, resample=resample)

        def blocks(inputs: int, outputs: int, *, factor: int, up: bool) -> list[nn.Module]:
            attention = AdmAttention(outputs, heads=flags.heads(outputs, up=up), interleaved=not flags.use_new_attention_order)
            return [residual(inputs, outputs), *([attention] if factor in flags.attended else [])]

        width, factor = widths[0], 1
        self.input_blocks = nn.ModuleList([Steps(nn.Conv2d(3, width, 3, padding=1))])
        kept = [width]  # widths of what the way down hands over to the way up
        for level, wider in enumerate(widths):
            for _ in range(flags.num_res_blocks):
                self.input_blocks.append(Steps(*blocks(width, wider, factor=factor, up=False)))
                width = wider
                kept.append(width)
            if level < len(widths) - 1:
                halve = residual(width, width, resample="down") if flags.resblock_updown else _halve(width)
                self.input_blocks.append(Steps(halve))
                kept.append(width)
                factor *= 2

        middle = AdmAttention(width, heads=flags.heads(width), interleaved=not flags.use_new_attention_order)
        self.middle_block = Steps(residual(width, width), middle, residual(width, width))

        self.output_blocks = nn.ModuleList()
        for level, narrower in reversed(list(enumerate(widths))):
            for index in range(flags.num_res_blocks + 1):
                layers = blocks(width + kept.pop(), narrower, factor=factor, up=True)
                width = narrower
                if level > 0 and index == flags.num_res_blocks:
                    layers.append(residual(width, width, resample="up") if flags.resblock_updown else _double(width))
                    factor //= 2
                self.output_blocks.append(Steps(*layers))
        outputs = 6 if flags.learn_sigma else 3  # with learned variances, three channels of them follow
        self.out = nn.Sequential(_norm(width), nn.SiLU(), nn.Conv2d(width, outputs, 3, padding=1))

    def forward(self, noisy: Tensor, times: Tensor, classes: Tensor | None = None) -> Tensor:
        """The network's answer.  # (N, 3, H, W), (N,) → (N, 3 or 6, H, W)"""
        condition = self.time_embed(_waves(times, self.width).to(noisy.dtype))
        if self.label_emb is not None:
            condition = condition + self.label_emb(classes)
        features, kept = noisy, []
        for block in self.input_blocks:
            features = block(features, condition)
            kept.append(features)
        features = self.middle_block(features, condition)
        for block in self.output_blocks:
            features = block(torch.cat([features, kept.pop()], dim=1), condition)
        answer: Tensor = self.out(features)
        return answer


class Steps(nn.Sequential):
    """Layers in a row, of which residual blocks are told the time."""

    def forward(self, features: Tensor, condition: Tensor) -> Tensor:  # type: ignore[override]
        for layer in self:
            features = layer(features, condition) if isinstance(layer, TimedResidual) else layer(features)
        return features


class TimedResidual(nn.Module):
    """Two convolutions with a shortcut, with the time and class mixed in between; may also halve or double the side."""

    def __init__(self, inputs: int, outputs: int, *, embedding: int, modulates: bool, resample: str = "") -> None:
        super().__init__()
        self.modulates, self.resample = modulates, resample
        self.in_layers = nn.Sequential(_norm(inputs), nn.SiLU(), nn.Conv2d(inputs, outputs, 3, padding=1))
        self.emb_layers = nn.Sequential(nn.SiLU(), nn.Linear(embedding, 2 * outputs if modulates else outputs))
        # The third place is that of a dropout layer, which does nothing outside of training.
        last = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.out_layers = nn.Sequential(_norm(outputs), nn.SiLU(), nn.Identity(), last)
        self.skip_connection = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1)

    def forward(self, features: Tensor, condition: Tensor) -> Tensor:
        norm, activate, first = self.in_layers
        change = first(self._resample(activate(norm(features))))
        mixed_in = self.emb_layers(condition)[:, :, None, None]
        if self.modulates:
            scale, shift = mixed_in.chunk(2, dim=1)
            norm, *rest = self.out_layers
            change = norm(change) * (1 + scale) + shift
        else:
            change, rest = change + mixed_in, list(self.out_layers)
        for layer in rest:
            change = layer(change)
        out: Tensor = self.skip_connection(self._resample(features)) + change
        return out

    def _resample(self, features: Tensor) -> Tensor:
        if self.resample == "up":
            return F.interpolate(features, scale_factor=2, mode="nearest")
        return F.avg_pool2d(features, 2) if self.resample == "down" else features


class AdmAttention(nn.Module):
    """Every place looks at every other one. `interleaved`: query, key and value lie side by side head by head."""

    def __init__(self, width: int, *, heads: int, interleaved: bool) -> None:
        super().__init__()
        self.heads, self.interleaved = heads, interleaved
        self.norm = _norm(width)
        self.qkv = nn.Conv1d(width, 3 * width, 1)
        self.proj_out = nn.Conv1d(width, width, 1)

    def forward(self, features: Tensor) -> Tensor:
        flat = features.flatten(2)  # (N, C, h·w)
        joint = self.qkv(self.norm(flat))
        count, _, places = joint.shape
        if self.interleaved:
            query, key, value = joint.reshape(count, self.heads, 3, -1, places).unbind(2)
        else:
            query, key, value = joint.reshape(count, 3, self.heads, -1, places).unbind(1)
        query, key, value = (part.transpose(2, 3) for part in (query, key, value))  # (N, heads, h·w, C / heads)
        seen = F.scaled_dot_product_attention(query, key, value)
        out: Tensor = flat + self.proj_out(seen.transpose(2, 3).reshape(flat.shape))
        return out.reshape(features.shape)


def _halve(width: int) -> nn.Module:
    return nn.Sequential(OrderedDict(op=nn.Conv2d(width, width, 3, stride=2, padding=1)))


def _double(width: int) -> nn.Module:
    return nn.Sequential(OrderedDict(up=nn.Upsample(scale_factor=2), conv=nn.Conv2d(width, width, 3, padding=1)))


def _norm(width: int) -> nn.GroupNorm:
    return nn.GroupNorm(32, width)


def _waves(times: Tensor, width: int) -> Tensor:
    """Cosines and sines of times at falling frequencies.  # (N,) → (N, width)"""
    half = width // 2
    frequencies = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32, device=times.device) / half)
    angles = times[:, None].float() * frequencies
    return torch.cat([angles.cos(), angles.sin()], dim=1)


class AdmDenoiser(Denoiser):
    """A network of the releases."""

    def __init__(self, network: AdmUNet, flags: Flags, *, sha256: str = "") -> None:
        super().__init__(network, sha256=sha256)
        self.flags, self.size = flags, flags.image_size
        self.classes = None if network.label_emb is None else network.label_emb.num_embeddings
        self.process = Process(signal_left(flags), "sample" if flags.predict_xstart else "epsilon")

    def predict(self, noisy: Tensor, times: Tensor, classes: Tensor) -> Tensor:
        """The network's answer; a learned variance is left out."""
        if self.flags.rescale_timesteps:  # the network always counts to 1000
            times = times * (1000 / self.flags.diffusion_steps)
        with self.in_own_dtype(noisy) as images:
            answer: Tensor = self.network(images, times, None if self.classes is None else classes)
        return answer[:, :3]

    def provenance(self) -> dict[str, str]:
        return {"network": repr(self.flags), "weights": self.sha256}


def adm(
    rest: str,
    *,
    flags: str | Mapping[str, Any] | None = None,
    strength: float = Denoising.strength,
    steps: int = Denoising.steps,
    steps_per_level: int = Denoising.steps_per_level,
    noising: Noising = Denoising.noising,
    gradient: Gradient = Denoising.gradient,
    classes: Sequence[str] | str | None = None,
    sha256: str | None = None,
) -> DiffusionGenerator:
    """Guided denoising with a checkpoint of OpenAI's Improved DDPM or ADM (guided diffusion) releases.

    `rest` is the checkpoint (.pt or .safetensors): a path, a file on the hub, or a URL. `flags` are the model and diffusion
    flags of its release, as in '--image_size 64 --num_channels 192 …'; a checkpoint with its released name needs none. The
    other options are those of the generator `diffusion`; a network of 1,000 classes has ImageNet's unless `classes` says others.
    """
    denoising = Denoising(strength=strength, steps=steps, steps_per_level=steps_per_level, noising=noising, gradient=gradient)
    file = weights.locate(rest, sha256=sha256)
    chosen = read_flags(flags, file=file)
    state = weights.load_state(file)
    with torch.device("meta"):  # no time spent on random numbers: every weight comes from the file
        network = AdmUNet(chosen, classes=_classes(state, chosen, str(file)))
    network.to_empty(device="cpu")
    weights.load_into(network, state, what=str(file))
    denoiser = AdmDenoiser(network, chosen, sha256=weights.file_sha256(file))
    if classes is None and denoiser.classes == IMAGENET:
        classes = "imagenet"
    return DiffusionGenerator(denoiser, denoising, classes=class_names(classes, denoiser.classes, what=f"adm:{rest}"))


def signal_left(flags: Flags) -> Tensor:
    """The share of the signal left at each time.  # (T,)"""
    count = flags.diffusion_steps
    if flags.noise_schedule == "linear":
        scale = 1000 / count
        betas = torch.linspace(scale * 1e-4, scale * 0.02, count, dtype=torch.float64)
    else:
        wave = [math.cos((step / count + 0.008) / 1.008 * math.pi / 2) ** 2 for step in range(count + 1)]
        falls = [min(1 - after / before, 0.999) for before, after in pairwise(wave)]
        betas = torch.tensor(falls, dtype=torch.float64)
    return (1 - betas).cumprod(0).float()


def _classes(state: Mapping[str, Tensor], flags: Flags, file: str) -> int | None:
    """The number of classes of the checkpoint."""
    if not flags.class_cond:
        return None
    if "label_emb.weight" not in state:
        raise BadWeights(f"{file}: class_cond is set, and the weights have no label_emb.weight; take class_cond out of the flags")
    return len(state["label_emb.weight"])
