"""The settings of OpenAI's diffusion releases (Improved DDPM, 2021; ADM, 2021), by the flags of their own scripts.

A set of flags is written as in the releases' instructions, `--image_size 64 --num_channels 192 …`, or as a mapping of the
same names. Flags that only concern training or sampling are known and left aside. Released checkpoints are known by
their file names.
"""

from __future__ import annotations

import difflib
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from counterfoil.core.errors import BadSpec

MULTIPLES = {
    512: (0.5, 1, 1, 2, 2, 4, 4),
    256: (1, 1, 2, 2, 4, 4),
    128: (1, 1, 2, 3, 4),
    64: (1, 2, 3, 4),
    32: (1, 2, 2, 2),
}
"""Channels at each resolution as multiples of `num_channels`, by picture side."""

ASIDE = frozenset(
    {"batch_size", "classifier_scale", "dropout", "ema_rate", "lr", "microbatch", "num_samples", "rescale_learned_sigmas"}
    | {"schedule_sampler", "sigma_small", "timestep_respacing", "use_checkpoint", "use_ddim", "use_fp16", "use_kl"}
)
"""Flags that do not change what the network computes."""


@dataclass(frozen=True)
class Flags:
    """What decides the network and its noise. Defaults are those of Improved DDPM, which suit every release."""

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
            raise BadSpec(f"image_size {self.image_size}: give channel_mult too; only {_listed(MULTIPLES)} have a usual one")
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


def read(given: str | Mapping[str, Any] | None, *, file: Path) -> Flags:
    """The flags given, or those released for a checkpoint of that name."""
    if given is None:
        stem = file.name.removesuffix(file.suffix)
        if stem not in RELEASED:
            raise BadSpec(f"{file}: not named like a released checkpoint, so its flags are not known; give flags")
        given = RELEASED[stem]
    values = given if isinstance(given, Mapping) else _parse(given)
    known = {field.name: type(field.default) for field in fields(Flags)}
    chosen = {}
    for name, value in values.items():
        if name in ASIDE:
            continue
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            raise BadSpec(f"flags: no flag {name!r}; {f'did you mean {near[0]!r}?' if near else f'flags are {_listed(known)}'}")
        chosen[name] = _convert(name, value, known[name])
    found = Flags(**chosen)
    _check(found)
    return found


def _parse(text: str) -> dict[str, str]:
    words = shlex.split(text.replace("=", " "))
    if len(words) % 2 or any(not word.startswith("--") for word in words[::2]):
        raise BadSpec(f"flags={text!r}: write them as '--image_size 64 --num_channels 128', each with its value")
    return {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}


def _convert(name: str, value: Any, kind: type) -> Any:
    if kind is str:
        return ",".join(str(item) for item in value) if isinstance(value, (list, tuple)) else str(value)
    if kind is bool:
        if str(value).lower() in ("true", "false"):
            return str(value).lower() == "true"
        raise BadSpec(f"flags: {name} is True or False, got {value!r}")
    try:
        return int(value)
    except (TypeError, ValueError):
        raise BadSpec(f"flags: {name} is a whole number, got {value!r}") from None


def _check(found: Flags) -> None:
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


def _listed(names: Any) -> str:
    return ", ".join(str(name) for name in names)
