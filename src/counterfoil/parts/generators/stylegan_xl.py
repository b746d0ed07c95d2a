"""Latent ascent in StyleGAN-XL (Sauer et al., 2022): a class-conditional generator of StyleGAN3's alias-free layers.

An image is found by optimisation from its class's mean w, and moves in w (one style for all layers) or in w+ (one for each). The
layers are those of Karras et al. (2021): Fourier features, modulated convolutions, and a leaky ReLU between an upsampling and a
downsampling filter. A row never depends on the others: styles are normalised per image. `stylegan_pickle` makes the files.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from math import pi, prod, sqrt
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.core.errors import BadSpec, BadWeights
from counterfoil.parts import weights
from counterfoil.parts.generators.diffusion import class_names
from counterfoil.parts.generators.inversion import InversionSettings, InvertedGenerator

Space = Literal["w", "w+"]
SETTINGS = "stylegan_xl"  # the entry of a file's metadata
IMAGENET = 1000  # classes


@dataclass(frozen=True)
class LayerSettings:
    """Sizes and switches of a layer, apart from its tensors."""

    rgb: bool  # the last one: no activation, no demodulation
    up: int
    down: int
    padding: tuple[int, int, int, int]  # left, right, above, below, of the upsampled image
    clamp: float | None = None

    def __post_init__(self) -> None:
        sizes = [self.up, self.down, *self.padding]
        if any(type(each) is not int for each in sizes) or len(self.padding) != 4:
            raise ValueError("up, down and four paddings are whole numbers")
        if not (1 <= self.up <= 16 and 1 <= self.down <= 16 and max(map(abs, self.padding)) <= 4096):
            raise ValueError(f"up={self.up}, down={self.down}, padding={self.padding} are of no StyleGAN-XL")


@dataclass(frozen=True)
class Settings:
    """Sizes of a network, apart from its tensors."""

    size: int
    output_scale: float
    input_size: int
    sampling_rate: float
    bandwidth: float
    layers: tuple[LayerSettings, ...]

    @classmethod
    def read(cls, text: str) -> Settings:
        """The settings in a file's metadata; TypeError, ValueError or KeyError if they are not such."""
        found = json.loads(text)
        layers = tuple(LayerSettings(**{**each, "padding": tuple(each["padding"])}) for each in found.pop("layers"))
        if not (1 <= int(found["size"]) <= 1024 and 1 <= int(found["input_size"]) <= 256 and 2 <= len(layers) <= 64):
            raise ValueError("of no size that StyleGAN-XL has")
        return cls(**found, layers=layers)

    def write(self) -> str:
        """The same as text."""
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        return json.dumps({**plain, "layers": [vars(each) for each in self.layers]}, sort_keys=True)


class Tensors(nn.Module):
    """A module that holds tensors of a file, by their names there."""

    def __init__(self, state: Mapping[str, Tensor], prefix: str, names: Sequence[str], optional: Sequence[str] = ()) -> None:
        super().__init__()
        self.names = [f"{prefix}{name}" for name in (*names, *optional)]
        for key, name in zip(self.names, (*names, *optional), strict=True):
            if key not in state and name in names:
                raise BadWeights(f"it lacks {key}")
            self.register_buffer(name.replace(".", "_"), state[key].float() if key in state else None)

    def __getattr__(self, name: str) -> Any:
        return super().__getattr__(name)


class FourierInput(Tensors):
    """The first layer: sines over the image, turned and moved by the style."""

    def __init__(self, state: Mapping[str, Tensor], settings: Settings) -> None:
        super().__init__(state, "input.", ("weight", "affine.weight", "affine.bias", "transform", "freqs", "phases"))
        self.settings = settings

    def forward(self, w: Tensor) -> Tensor:
        """Features of every place.  # (N, width) → (N, channels, side, side)"""
        turn = fully_connected(w, self.affine_weight, self.affine_bias)  # cosine, sine, x, y
        turn = turn / turn[:, :2].norm(dim=1, keepdim=True)
        cosine, sine, across, down = turn.unbind(dim=1)
        rotation = torch.stack([cosine, -sine, sine, cosine], dim=1).unflatten(1, (2, 2))
        moved = (rotation @ torch.stack([-across, -down], dim=1)[..., None])[..., 0]
        rotation, moved = rotation @ self.transform[:2, :2], moved + rotation @ self.transform[:2, 2]
        phases = self.phases + moved @ self.freqs.T  # (N, channels)
        frequencies = self.freqs @ rotation  # (N, channels, 2)
        rate, band, side = self.settings.sampling_rate, self.settings.bandwidth, self.settings.input_size
        kept = (1 - (frequencies.norm(dim=2) - band) / (rate / 2 - band)).clamp(0, 1)  # frequencies out of band are damped
        place = (torch.arange(side, device=w.device) + 0.5 - side / 2) / rate
        across_down = torch.stack(torch.meshgrid(place, place, indexing="xy"), dim=-1)  # (side, side, 2)
        waves = torch.sin(2 * pi * (torch.einsum("hwd,ncd->nhwc", across_down, frequencies) + phases[:, None, None]))
        waves = (waves * kept[:, None, None]).permute(0, 3, 1, 2).contiguous()
        return F.conv2d(waves, self.weight[:, :, None, None] / sqrt(len(self.weight)))


class SynthesisLayer(Tensors):
    """A modulated convolution and a filtered leaky ReLU."""

    def __init__(self, state: Mapping[str, Tensor], number: int, settings: LayerSettings) -> None:
        names = ("weight", "bias", "affine.weight", "affine.bias", "magnitude_ema")
        super().__init__(state, f"layers.{number}.", names, optional=("up_filter", "down_filter"))
        self.settings = settings

    def forward(self, x: Tensor, w: Tensor) -> Tensor:
        """The next layer's input, in the style w.  # (N, channels, h, w), (N, width)"""
        styles = fully_connected(w, self.affine_weight, self.affine_bias)
        if self.settings.rgb:
            styles = styles / sqrt(prod(self.weight.shape[1:]))
        x = modulated_convolution(x, self.weight, styles, self.magnitude_ema.rsqrt(), demodulate=not self.settings.rgb)
        return filtered_relu(x + self.bias[:, None, None], self.settings, self.up_filter, self.down_filter)


def fully_connected(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A linear layer whose weights are stored for an input of unit variance in every feature."""
    return row_product(x, weight / sqrt(weight.shape[1])) + bias


def row_product(x: Tensor, weight: Tensor) -> Tensor:
    """`x @ weight.T`, summed row by row: a product of matrices may round a row by its place among the others."""
    return (x[:, None] * weight).sum(dim=2)


def modulated_convolution(x: Tensor, weight: Tensor, styles: Tensor, gain: Tensor, *, demodulate: bool) -> Tensor:
    """Convolve rows with the same weights, each scaled by its own styles before and back to unit variance after.

    # (N, in, h, w), (out, in, k, k), (N, in) → (N, out, h + k - 1, w + k - 1)
    """
    if demodulate:
        weight = weight * weight.square().mean(dim=(1, 2, 3), keepdim=True).rsqrt()
        styles = styles * styles.square().mean(dim=1, keepdim=True).rsqrt()
    made = F.conv2d(x * (styles * gain)[:, :, None, None], weight, padding=weight.shape[-1] - 1)
    if not demodulate:
        return made
    size = (row_product(styles.square(), weight.square().sum(dim=(2, 3))) + 1e-8).rsqrt()  # (N, out)
    return made * size[:, :, None, None]


def filtered_relu(x: Tensor, settings: LayerSettings, up_filter: Tensor | None, down_filter: Tensor | None) -> Tensor:
    """Upsample, leaky ReLU of unit gain, downsample; for the last layer only the filters and the frame."""
    count, channels, height, width = x.shape
    if settings.up > 1:  # zeros between the values
        x = F.pad(x[:, :, :, None, :, None], (0, settings.up - 1, 0, 0, 0, settings.up - 1))
        x = x.reshape(count, channels, height * settings.up, width * settings.up)
    x = filter_image(F.pad(x, settings.padding), up_filter) * settings.up**2
    if not settings.rgb:
        x = F.leaky_relu(x, 0.2) * sqrt(2)
    if settings.clamp is not None:
        x = x.clamp(-settings.clamp, settings.clamp)
    return filter_image(x, down_filter)[:, :, :: settings.down, :: settings.down]


def filter_image(x: Tensor, taps: Tensor | None) -> Tensor:
    """Convolve every channel with a filter of one dimension along both, or with one of two; without one, as it is."""
    if taps is None:
        return x
    flat = x.flatten(0, 1)[:, None]
    kernels = [taps.flip(0)[None, :], taps.flip(0)[:, None]] if taps.dim() == 1 else [taps.flip((0, 1))]
    for kernel in kernels:
        flat = F.conv2d(flat, kernel[None, None])
    return flat.reshape(*x.shape[:2], *flat.shape[2:])


class StyleganXL(nn.Module):
    """The synthesis network, with the mean w of every class."""

    def __init__(self, state: Mapping[str, Tensor], settings: Settings, space: Space) -> None:
        super().__init__()
        self.size, self.output_scale = settings.size, settings.output_scale
        self.input = FourierInput(state, settings)
        self.layers = nn.ModuleList(SynthesisLayer(state, number, each) for number, each in enumerate(settings.layers))
        self.means = Tensors(state, "", ("w_avg",))
        known = {name for module in self.modules() if isinstance(module, Tensors) for name in module.names}
        if more := sorted(set(state) - known):
            raise BadWeights(f"it also has {more[0]}")
        layers = (len(self.layers) + 1,) if space == "w+" else ()
        self.latent_shape: Sequence[int] = (*layers, *self.mean.shape[1:])

    @property
    def mean(self) -> Tensor:
        """The mean w of every class.  # (classes, width)"""
        found: Tensor = self.means.w_avg
        return found if found.dim() == 2 else found[None]

    def decode(self, latents: Tensor) -> Tensor:
        """Images of styles, about [0, 1].  # (N, width) or (N, layers + 1, width) → (N, 3, size, size)"""
        styles = latents if latents.dim() == 3 else latents[:, None].expand(-1, len(self.layers) + 1, -1)
        x: Tensor = self.input(styles[:, 0])
        for number, layer in enumerate(self.layers):
            x = layer(x, styles[:, number + 1])
        return (x * self.output_scale + 1) / 2


class StyleganGenerator(InvertedGenerator):
    """Moves an image's styles, after finding them from the mean of its class."""

    module: Any  # StyleganXL

    def __init__(self, module: StyleganXL, inversion: InversionSettings, provenance: dict[str, str]) -> None:
        super().__init__(module, inversion, provenance=provenance)
        self.classes: Sequence[str] | None = None

    def guesses(self, images: Tensor, labels: Tensor, seeds: Tensor) -> Iterator[Tensor]:
        """The means of the images' classes."""
        mean = self.module.mean[labels if len(self.module.mean) > 1 else torch.zeros_like(labels)]  # (N, width)
        layers = self.module.latent_shape[:-1]
        yield mean.clone() if not layers else mean[:, None].repeat(1, *layers, 1)


def stylegan_xl(
    rest: str,
    *,
    space: Space = "w",
    classes: Sequence[str] | Literal["imagenet"] | None = None,
    steps: int = 500,
    learning_rate: float = 0.05,
    sha256: str | None = None,
) -> StyleganGenerator:
    """Latent ascent in StyleGAN-XL, from a safetensors file that `python -m counterfoil.parts.generators.stylegan_pickle` made.

    Each image is inverted by `steps` of Adam at `learning_rate` from its class's mean w; `space` says whether all layers share a
    style (`w`) or have one each (`w+`). `classes` are the network's, by default ImageNet's where it has a thousand.
    """
    if space not in ("w", "w+"):
        raise BadSpec(f"no space named {space!r}; space is 'w' or 'w+'")
    file = weights.find(rest)
    if file.suffix != ".safetensors":
        convert = f"python -m counterfoil.parts.generators.stylegan_pickle {file} {file.with_suffix('.safetensors').name}"
        raise BadWeights(f"{file}: published pickles carry programs and are not loaded; make safetensors of it once: '{convert}'")
    state = weights.load_state(file, sha256)
    with weights.loading(file):
        from safetensors import safe_open

        with safe_open(file, "pt") as opened:
            metadata = opened.metadata() or {}
    try:
        network = StyleganXL(state, Settings.read(metadata[SETTINGS]), space)
        with torch.no_grad():
            shape = network.decode(network.mean[:1]).shape[1:]
    except BadWeights as error:
        raise BadWeights(f"{file}: not a StyleGAN-XL: {error}") from None
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise BadWeights(f"{file}: its settings are not of a StyleGAN-XL ({type(error).__name__}: {str(error)[:120]})") from None
    if tuple(shape) != (3, network.size, network.size):
        raise BadWeights(f"{file}: makes {tuple(shape)} values per image, and says {network.size} × {network.size} pixels")
    count = len(network.mean)
    if classes is None and count == IMAGENET:
        classes = "imagenet"
    sources = {"network": "StyleGAN-XL", "weights": weights.file_sha256(file), "space": space}
    made = StyleganGenerator(network, InversionSettings(steps, learning_rate, candidates=1), sources)
    made.classes = class_names(classes, count if count > 1 else None, what=f"stylegan_xl:{rest}")
    return made
