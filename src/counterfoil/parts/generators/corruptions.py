"""The families of change that `transforms` chooses from.

A family is a function `(images, severity, seeds) → images`, with severity (N, 1, 1, 1) in [0, 1] and seeds (N,). Severity 0
is the image itself (up to rounding), 1 the strongest change. Images may leave [0, 1]; the caller clamps them.

Severity in levels. A severity of 1 is level 5 of ImageNet-C (Hendrycks and Dietterich, 2019), 0.2 is level 1.

Lengths are given in pixels of a 224-pixel image and scale with the image, so that a level looks alike at every size.
The families follow theirs but are our own, differentiable in the severity, and give other pixels: results are not
to be compared with published ImageNet-C numbers.
"""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from counterfoil.parts.generators import draws
from counterfoil.parts.generators.latent import straight_through
from counterfoil.parts.images import to_grey

COUNT = 5
SIDE = 224  # the image that lengths refer to


def _pixels(images: Tensor, length: float) -> float:
    """A length at 224 pixels, in pixels of these images."""
    return length * min(images.shape[-2:]) / SIDE


def _split(severity: Tensor) -> tuple[Tensor, Tensor]:
    """The level at or below a severity, 0 to 4, and the way from there to the next one, in [0, 1]."""
    height = severity * COUNT
    lower = height.detach().floor().clamp(0, COUNT - 1)
    return lower.long(), height - lower


def _along(severity: Tensor, values: Sequence[float]) -> Tensor:
    """The value at a severity, given those at levels 0 to 5; straight lines between them."""
    lower, way = _split(severity)
    table = torch.tensor(values, device=severity.device)
    return torch.lerp(table[lower], table[lower + 1], way)


def _blend(images: Tensor, severity: Tensor, corrupt: Callable[[Tensor, int, int], Tensor]) -> Tensor:
    """Images at a severity, blended from those at the whole levels on either side.

    For families that are not differentiable in their parameter, or only at a high price. `corrupt(image, level, row)`
    gives one image at a level from 1 to 5; level 0 is the image itself.
    """
    lower, way = _split(severity)
    below = lower.flatten().tolist()
    at_below = _at(images, below, corrupt)
    if not torch.is_grad_enabled() and not way.any():
        return at_below
    return torch.lerp(at_below, _at(images, [level + 1 for level in below], corrupt), way)


def _at(images: Tensor, levels: Sequence[int], corrupt: Callable[[Tensor, int, int], Tensor]) -> Tensor:
    rows = images.split(1)
    return torch.cat([rows[i] if level == 0 else corrupt(rows[i], level, i) for i, level in enumerate(levels)])


def rotation(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """A turn about the middle by up to 30 degrees, to the side that the seed gives."""
    angle = severity * draws.sign(seeds, "rotation") * math.radians(30)
    across, down = centre_offsets(images).split(1, dim=1)
    turned = torch.cat([across * angle.cos() - down * angle.sin(), across * angle.sin() + down * angle.cos()], dim=1)
    return sample(images, turned)


def translation(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """A shift by up to a fifth of the image, in the direction that the seed gives."""
    angle = draws.between(seeds, "translation", -math.pi, math.pi)
    shift = severity * 0.2 * min(images.shape[-2:])
    return sample(images, centre_offsets(images) + shift * torch.cat([angle.cos(), angle.sin()], dim=1))


def scaling(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """The image larger or smaller, as the seed says, by up to 1.6 times."""
    return sample(images, centre_offsets(images) * torch.exp(severity * draws.sign(seeds, "scaling") * math.log(1.6)))


def elastic(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """The image as on crumpled cloth: smooth random displacements, wide ones and narrow ones."""
    size = (images.shape[-2], images.shape[-1])
    wide = draws.smooth(seeds, "elastic wide", knots=5, size=size, channels=2)
    narrow = draws.smooth(seeds, "elastic narrow", knots=min(13, *size), size=size, channels=2)
    return sample(images, centre_offsets(images) + severity * min(size) * (0.05 * wide + 0.03 * narrow))


def centre_offsets(images: Tensor) -> Tensor:
    """The place of every pixel, counted in pixels from the image's middle: across, down.  # → (1, 2, H, W)"""
    height, width = images.shape[-2:]
    down = torch.arange(height, device=images.device, dtype=torch.float32) - (height - 1) / 2
    across = torch.arange(width, device=images.device, dtype=torch.float32) - (width - 1) / 2
    return torch.stack(torch.meshgrid(across, down, indexing="xy"))[None]


def sample(images: Tensor, places: Tensor) -> Tensor:
    """The images at other places, given as `centre_offsets` gives them.  # (N, 3, H, W), (N, 2, H, W)"""
    height, width = images.shape[-2:]
    half = torch.tensor([width / 2, height / 2], device=images.device).reshape(1, 2, 1, 1)
    grid = (places / half).permute(0, 2, 3, 1).expand(len(images), -1, -1, -1)
    return F.grid_sample(images, grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def brightness(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """More light, up to half the range."""
    return images + 0.5 * severity


def contrast(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Less contrast, down to a twentieth."""
    return torch.lerp(images, images.mean((2, 3), keepdim=True), 0.95 * severity)


def hue(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """All colours turned about the grey axis by up to 90 degrees, to the side that the seed gives. Grey stays grey."""
    angle = severity * draws.sign(seeds, "hue") * math.radians(90)
    mean = images.mean(1, keepdim=True)
    red, green, blue = images.split(1, dim=1)
    across = torch.cat([blue - green, red - blue, green - red], dim=1) / math.sqrt(3)  # a quarter turn of the colours
    return mean + (images - mean) * angle.cos() + across * angle.sin()


def saturation(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Colours faded to grey, or up to three times as strong, as the seed says. Grey stays grey."""
    factor = 1 + severity * torch.where(draws.sign(seeds, "saturation") < 0, -1.0, 2.0)
    grey = to_grey(images)
    return grey + (images - grey) * factor


DEFOCUS_RADIUS = (0.0, 3.0, 4.0, 6.0, 8.0, 10.0)
MOTION_LENGTH = (0.0, 8.0, 12.0, 15.0, 19.0, 25.0)
GLASS_REACH = (0.0, 1.0, 1.5, 2.0, 3.0, 4.0)
GLASS_SPREAD = (0.0, 0.7, 0.9, 1.0, 1.1, 1.5)
ZOOMS = 12  # images averaged into a zoom blur


def defocus_blur(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """The disc of a lens out of focus, up to a radius of 10 pixels."""

    def defocus(image: Tensor, level: int, row: int) -> Tensor:
        radius = _pixels(image, DEFOCUS_RADIUS[level])
        distance = _offsets(radius, image.device).norm(dim=0)
        return convolve(image, (radius + 1 - distance).clamp(0, 1))  # fades over one pixel

    return _blend(images, severity, defocus)


def motion_blur(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """The streak of a moving camera, up to 25 pixels long, within 45 degrees of level; the seed gives the angle."""
    angles = draws.between(seeds, "motion angle", -45, 45).flatten()

    def shake(image: Tensor, level: int, row: int) -> Tensor:
        return convolve(image, streak(_pixels(image, MOTION_LENGTH[level]), angles[row]))

    return _blend(images, severity, shake)


def streak(length: float, angle: Tensor) -> Tensor:
    """The kernel of a straight line at an angle in degrees; it fades over one pixel at both ends.  # (K, K)"""
    down, right = _offsets(length / 2, angle.device).unbind()
    cosine, sine = torch.deg2rad(angle).cos(), torch.deg2rad(angle).sin()
    onward, aside = (right * cosine + down * sine).abs(), (down * cosine - right * sine).abs()
    return (length / 2 + 1 - onward).clamp(0, 1) * (1 - aside).clamp(0, 1)


def glass_blur(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Frosted glass: every pixel is taken from up to 4 pixels away, then a little Gaussian blur."""
    away = draws.uniform(seeds, "glass", 2, *images.shape[-2:]) * 2 - 1

    def scatter(image: Tensor, level: int, row: int) -> Tensor:
        moved = sample(image, centre_offsets(image) + _pixels(image, GLASS_REACH[level]) * away[row])
        spread = _pixels(image, GLASS_SPREAD[level])
        distance = _offsets(2.5 * spread, image.device).norm(dim=0)
        return convolve(moved, torch.exp(-0.5 * (distance / spread) ** 2))

    return _blend(images, severity, scatter)


def zoom_blur(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """A lens zoomed during the exposure, up to 1.31 times: the mean of images at zooms from 1 up."""
    grid, total = centre_offsets(images), torch.zeros_like(images)
    for step in range(ZOOMS):
        total = total + sample(images, grid / (1 + 0.31 * severity * step / (ZOOMS - 1)))
    return total / ZOOMS


def convolve(image: Tensor, kernel: Tensor) -> Tensor:
    """One image, channel by channel, with a kernel made to sum to one; mirrored at the borders.  # (1, C, H, W), (K, K)"""
    reach = kernel.shape[-1] // 2
    channels = F.pad(image, (reach, reach, reach, reach), mode="reflect").transpose(0, 1)  # (C, 1, H + 2 reach, W + 2 reach)
    return F.conv2d(channels, (kernel / kernel.sum())[None, None]).transpose(0, 1)


def _offsets(reach: float, device: torch.device) -> Tensor:
    """Rows and columns of a kernel, counted from its middle: down, right.  # (2, K, K)"""
    radius = math.ceil(reach)
    span = torch.arange(-radius, radius + 1, device=device, dtype=torch.float32)
    return torch.stack(torch.meshgrid(span, span, indexing="ij"))


FROST_PICTURE = (1.0, 0.95, 0.8, 0.7, 0.65, 0.6)
FROST_ICE = (0.0, 0.35, 0.5, 0.6, 0.65, 0.75)
ICE = (0.86, 0.94, 1.0)
SNOW_COVER = (0.0, 0.04, 0.06, 0.08, 0.10, 0.13)  # share of the grid that holds a flake
SNOW_WHITE = (0.0, 0.1, 0.2, 0.25, 0.3, 0.35)  # how far the scene itself whitens


def fog(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Clouds between the camera and the scene; at most a quarter of the image's own light is left."""
    density = 3 * severity
    light = 0.45 + 0.55 * draws.plasma(seeds, "fog", size=_size(images))  # fog scatters light: its thin places are grey
    return (images + density * light) / (1 + density)


def frost(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Ice on the window: needles of frost, thickest at the rim and in patches."""
    ice = _needles(seeds, _size(images)) * torch.tensor(ICE, device=images.device).reshape(1, 3, 1, 1)
    return images * _along(severity, FROST_PICTURE) + ice * _along(severity, FROST_ICE)


def snow(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Falling flakes, small and large, in a scene that whitens. Flakes appear level by level, images are blended between."""
    angles = draws.between(seeds, "snow angle", 50, 130).flatten()

    def fall(image: Tensor, level: int, row: int) -> Tensor:
        flakes = _flakes(seeds[row : row + 1], SNOW_COVER[level], size=_size(image), side=_pixels(image, 1.0))
        falling = convolve(flakes, streak(_pixels(image, 8.0), angles[row]))
        whitened = torch.lerp(image, torch.maximum(image, to_grey(image) * 0.6 + 0.4), SNOW_WHITE[level])
        return whitened + falling

    return _blend(images, severity, fall)


def _flakes(seed: Tensor, cover: float, *, size: tuple[int, int], side: float) -> Tensor:
    """Soft white spots in two sizes; a larger cover keeps the spots of a smaller one and adds to them.  # → (1, 1, *size)"""
    total = torch.zeros(1, 1, *size, device=seed.device)
    for name, grain in (("small flakes", 2.5), ("large flakes", 5.0)):
        pitch = max(grain * side, 1.0)
        order = draws.uniform(seed, name, 1, max(round(size[0] / pitch), 2), max(round(size[1] / pitch), 2))
        spots = ((order - 1 + cover) / cover).clamp(0, 1).sqrt()
        total = total + F.interpolate(spots, size=size, mode="bilinear", align_corners=False)
    return total


def _needles(seeds: Tensor, size: tuple[int, int]) -> Tensor:
    """Frost in [0, 1]: the ridges of smooth noise, crossed at several grains, where a coarser cloud lets it grow."""
    ridges = torch.zeros(len(seeds), 1, *size, device=seeds.device)
    for octave, knots in enumerate((9, 17, 33, 65)):
        noise = draws.smooth(seeds, f"frost {octave}", knots=min(knots, *size), size=size)
        ridges = ridges + 0.8**octave * (1 - 2.5 * noise.abs()).clamp(0, 1)
    down = torch.linspace(-1, 1, size[0], device=seeds.device).abs()[:, None]
    across = torch.linspace(-1, 1, size[1], device=seeds.device).abs()
    rim = torch.maximum(down, across) ** 2
    growth = draws.plasma(seeds, "frost growth", size=size, octaves=4) + 0.6 * rim
    return (ridges * 0.55 + 0.25).clamp(0, 1) * (growth * 1.3 - 0.25).clamp(0, 1)


def _size(images: Tensor) -> tuple[int, int]:
    return images.shape[-2], images.shape[-1]


def gaussian_noise(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Additive normal noise, as of a sensor in low light; standard deviation up to 0.38."""
    return images + 0.38 * severity * draws.normal(seeds, "gaussian noise", *images.shape[1:])


def shot_noise(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Noise of counting photons, down to three at full brightness; the Poisson law by its normal approximation."""
    brightness = (images + 1e-4).sqrt()  # the small term keeps the gradient finite in black
    return images + severity / 3**0.5 * brightness * draws.normal(seeds, "shot noise", *images.shape[1:])


def impulse_noise(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Values that jump to black or white, up to 27 % of them.

    Whether a value jumps is a threshold; the gradient is that of the expected image, which is linear in the rate.
    """
    rate = 0.27 * severity
    order = draws.uniform(seeds, "impulse order", *images.shape[1:])
    target = (draws.uniform(seeds, "impulse target", *images.shape[1:]) < 0.5).float()
    jumps = (order < rate).float()
    seen = torch.lerp(images, target, jumps)
    return straight_through(seen, seen + (rate - rate.detach()) * (target - images).detach())


PIXELATE_SHARE = (1.0, 0.6, 0.5, 0.4, 0.3, 0.25)  # of the side that is left
JPEG_QUALITY = (100, 25, 18, 15, 10, 7)


def pixelate(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Fewer, larger pixels, down to a quarter of the side."""
    height, width = images.shape[-2:]

    def coarsen(image: Tensor, level: int, row: int) -> Tensor:
        share = PIXELATE_SHARE[level]
        small = F.interpolate(image, size=(max(round(height * share), 1), max(round(width * share), 1)), mode="area")
        return F.interpolate(small, size=(height, width), mode="nearest-exact")

    return _blend(images, severity, coarsen)


def jpeg(images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """Compressed by a real JPEG encoder, down to quality 7; gradients pass to the image as if it had not been."""

    def compress(image: Tensor, level: int, row: int) -> Tensor:
        return straight_through(_through_file(image.detach(), JPEG_QUALITY[level]), image)

    return _blend(images, severity, compress)


def _through_file(image: Tensor, quality: int) -> Tensor:
    values = (image[0].permute(1, 2, 0).clamp(0, 1) * 255).round().byte().cpu().numpy()
    file = io.BytesIO()
    Image.fromarray(values).save(file, format="JPEG", quality=quality)
    with Image.open(file) as stored:
        decoded = torch.from_numpy(np.array(stored))
    return decoded.permute(2, 0, 1)[None].to(image) / 255


Family = Callable[[Tensor, Tensor, Tensor], Tensor]

_GROUPS: dict[str, tuple[Family, ...]] = {
    "geometry": (rotation, translation, scaling, elastic),
    "weather": (snow, frost, fog),
    "colour": (brightness, contrast, hue, saturation),
    "blur": (defocus_blur, glass_blur, motion_blur, zoom_blur),
    "noise": (gaussian_noise, shot_noise, impulse_noise),
    "digital": (pixelate, jpeg),
}
GROUPS = {group: {each.__name__.replace("_", "-"): each for each in families} for group, families in _GROUPS.items()}
"""Families by group, in the order in which a camera would meet them: scene, air, light, lens, sensor, file."""

FAMILIES: dict[str, Family] = {name: family for group in GROUPS.values() for name, family in group.items()}

COMMON = (
    "gaussian-noise", "shot-noise", "impulse-noise", "defocus-blur", "glass-blur", "motion-blur", "zoom-blur",
    "snow", "frost", "fog", "brightness", "contrast", "elastic", "pixelate", "jpeg",
)  # fmt: skip
"""The fifteen families of ImageNet-C."""
