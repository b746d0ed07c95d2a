"""A protocol as small as one can be: Gaussian noise of several strengths. Numbers and reports are those of the base class."""

from __future__ import annotations

from typing import Literal

from counterfoil.core.spec import PlainSpec
from counterfoil.protocols.base import ImageProtocol


class NoiseSpec(PlainSpec):
    """Add Gaussian noise of several strengths."""

    protocol: Literal["noise"] = "noise"
    strengths: tuple[float, ...] = (0.05, 0.1, 0.2)


class Noise(ImageProtocol):
    """Add noise, and ask the model again."""

    name = "noise"
    title = "Gaussian noise of several strengths"
    spec = NoiseSpec

    def outcomes(self, work, sources):
        import torch

        from counterfoil.core.naming import stable_hash
        from counterfoil.protocols.running import MadeImage, one_step

        def make(source):
            for strength in work.spec.strengths:
                draw = torch.Generator().manual_seed(stable_hash(source.seed, f"noise {strength}") % 2**62)
                noise = torch.randn(source.image.shape, generator=draw)
                yield MadeImage(source.image + strength * noise, "noise", f"{strength:g}")

        return one_step(work, sources, make)


noise = Noise()
