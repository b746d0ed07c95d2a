"""Image features from a TorchScript program, such as the Inception network that FID is defined by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts import images
from counterfoil.parts.contracts import Movable, Trait
from counterfoil.parts.models.preprocessing import Preprocessing
from counterfoil.parts.models.programs import ScriptRunner


@dataclass(frozen=True)
class FeatureOptions:
    """The side of the images a program gets, the range of their values, and the hash of the file."""

    size: int = 299
    scale: float = 255.0
    shift: float = 0.0
    sha256: str | None = None


def load(path: str, options: FeatureOptions) -> ScriptFeatures:
    """Features of a TorchScript program: torchscript:inception.pt.

    It gets images of side `size`, values from `shift` to `shift` + `scale`; some exports of FID's Inception want 0 to 255,
    others −1 to 0.9921875, that is scale 1.9921875, shift −1.

    Such a file is a program; load only what you trust, and pin it with `sha256`.
    """
    runner = ScriptRunner(path, options.sha256, what=f"torchscript:{path}")
    return ScriptFeatures(runner, options, name=path)


class ScriptFeatures(Movable):
    """A program that turns images into rows of features. It knows no words."""

    pairwise = False

    def __init__(self, runner: ScriptRunner, options: FeatureOptions, *, name: str) -> None:
        self._runner, self.options, self.name = runner, options, name
        size, scale, shift = options.size, options.scale, options.shift
        levels = f"the options: values from {shift:g} to {shift + scale:g}"
        self.preprocessing = Preprocessing(
            size=(size, size), resizing="squash", mean=(0, 0, 0), std=(1, 1, 1), sized_by="the options", normalised_by=levels
        )

    @property
    def size(self) -> int | None:
        return self.preprocessing.side

    def embed_images(self, pictures: Tensor) -> Tensor:
        resized = images.resize(pictures, (self.options.size, self.options.size), interpolation="bilinear")
        return self._runner(resized * self.options.scale + self.options.shift).flatten(1)

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Refused."""
        raise BadPart(f"torchscript:{self.name}: gives features of images only; choose clip: or openclip: to compare words")

    def logits(self, similarity: Tensor) -> Tensor:
        return similarity

    def describe(self) -> list[Trait]:
        return self.preprocessing.describe()

    def provenance(self) -> dict[str, str]:
        return self._runner.provenance()
