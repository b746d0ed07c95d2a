"""The families of change that `transforms` chooses from.

A family is a function `(images, severity, seeds) → images`, with severity (N, 1, 1, 1) in [0, 1] and seeds (N,). Severity 0
is the picture itself (up to rounding), 1 the strongest change. Pictures may leave [0, 1]; whoever calls clamps them.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from counterfoil.parts.generators.corruptions import blur, colour, digital, geometry, noise, weather

Family = Callable[[Tensor, Tensor, Tensor], Tensor]

GROUPS: dict[str, dict[str, Family]] = {
    "geometry": {
        "rotation": geometry.rotation,
        "translation": geometry.translation,
        "scaling": geometry.scaling,
        "elastic": geometry.elastic,
    },
    "weather": {"snow": weather.snow, "frost": weather.frost, "fog": weather.fog},
    "colour": {
        "brightness": colour.brightness,
        "contrast": colour.contrast,
        "hue": colour.hue,
        "saturation": colour.saturation,
    },
    "blur": {
        "defocus-blur": blur.defocus_blur,
        "glass-blur": blur.glass_blur,
        "motion-blur": blur.motion_blur,
        "zoom-blur": blur.zoom_blur,
    },
    "noise": {
        "gaussian-noise": noise.gaussian_noise,
        "shot-noise": noise.shot_noise,
        "impulse-noise": noise.impulse_noise,
    },
    "digital": {"pixelate": digital.pixelate, "jpeg": digital.jpeg},
}
"""Families by group, in the order in which a camera would meet them: scene, air, light, lens, sensor, file."""

FAMILIES: dict[str, Family] = {name: family for group in GROUPS.values() for name, family in group.items()}

COMMON = (
    "gaussian-noise", "shot-noise", "impulse-noise", "defocus-blur", "glass-blur", "motion-blur", "zoom-blur",
    "snow", "frost", "fog", "brightness", "contrast", "elastic", "pixelate", "jpeg",
)  # fmt: skip
"""The fifteen families of ImageNet-C."""
