"""The lab's parts by name: `lab:narrow`, `lab:vqgan`, `lab:clip`, `lab:wardrobe`. The same code loads the big ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import BadData, UnknownName
from counterfoil.lab import garments, scenes
from counterfoil.lab.captions import captions
from counterfoil.lab.places import WEIGHTS, known
from counterfoil.lab.scene_painter import ScenePainter
from counterfoil.lab.vocabulary import GARMENTS
from counterfoil.parts import images
from counterfoil.parts.contracts import Generator, Painter, Sample
from counterfoil.parts.encoders import clip as encoders
from counterfoil.parts.encoders.clip import TransformersEncoder
from counterfoil.parts.generators.autoencoders import autoencoder
from counterfoil.parts.generators.diffusion.unets import diffusion
from counterfoil.parts.models.module import ModuleModel
from counterfoil.parts.models.timm_models import timm_model
from counterfoil.parts.oracles.scoring import AcceptanceRule, ClipOptions, ZeroShotOracle, clip_oracle
from counterfoil.parts.painters.pipelines import diffusers_painter

CLASSIFIERS = (
    "narrow", "augmented", "diverse", "vit", "grey", "adversarial", "background-shortcut", "colour-shortcut",
)  # fmt: skip
GENERATORS: dict[str, tuple[Callable[..., Any], str]] = {
    "vqgan": (autoencoder, "vqgan"),
    "kl": (autoencoder, "diffusion/vae"),
    "ddpm": (diffusion, "ddpm"),
}
BLOCK = 64  # scenes drawn at a time


def model(name: str) -> ModuleModel:
    """A classifier of the lab, as in lab:narrow; some have flaws that were planted."""
    return timm_model(str(WEIGHTS / known(name, CLASSIFIERS)))


def generator(name: str, **options: Any) -> Generator:
    """The lab's generators: lab:vqgan and lab:kl (latent ascent), lab:ddpm (guided denoising), with the options of each kind."""
    make, folder = GENERATORS[known(name, tuple(GENERATORS))]
    made: Generator = make(str(WEIGHTS / folder), **options)
    return made


@dataclass(frozen=True)
class OracleOptions(AcceptanceRule):
    """The rule, and the prompts with `{class}` in them."""

    templates: str | Sequence[str] = "an image of a {class}"


def oracle(name: str, options: OracleOptions) -> ZeroShotOracle:
    """The lab's CLIP, given class names: lab:clip."""
    return clip_oracle(str(WEIGHTS / known(name, ("clip",))), ClipOptions(**vars(options)))


def painter(
    name: str,
    *,
    steps: int = 10,
    guidance: float = 5.0,
    scheduler: str | None = "DPMSolverMultistepScheduler",
    batch: int | None = None,
) -> Painter:
    """The lab's painters for sentences of its grammar: lab:diffusion, and lab:scenes, the world itself, drawn exactly.

    The options are those of lab:diffusion. `scheduler: null` takes the one the weights come with, DDIM, which needs more
    steps; `python -m bench.imagenet_d` says how faithful ten steps of the default are.
    """
    if known(name, ("diffusion", "scenes")) == "scenes":
        return ScenePainter()
    folder = str(WEIGHTS / "diffusion")
    return diffusers_painter(folder, steps=steps, guidance=guidance, scheduler=scheduler, batch=batch)


def encoder(name: str) -> TransformersEncoder:
    """The lab's CLIP, which compares pictures with words: lab:clip."""
    return encoders.load(str(WEIGHTS / known(name, ("clip",))))


def wardrobe(name: str, *, count: int = 400, distribution: str = "narrow", split: str = "report", seed: int = 0) -> Wardrobe:
    """Scenes of garments drawn on the spot, with their truth known: lab:wardrobe.

    `distribution` is one of narrow, full, background-shortcut, colour-shortcut and planted, where both shortcuts hold;
    `split` is `report`, or `tune` for choosing settings on other garments than the reported ones.
    """
    if name not in ("", "wardrobe"):
        raise UnknownName(f"no lab data named {name!r}; there is lab:wardrobe")
    if count < 1:
        raise BadData(f"lab:wardrobe: count is the number of scenes, at least 1, got {count}")
    return Wardrobe(count, distribution=distribution, split=split, seed=seed)


class Wardrobe:
    """A data set of scenes. Pictures are drawn in blocks when they are asked for and not kept."""

    classes = GARMENTS

    def __init__(self, count: int, *, distribution: str, split: str, seed: int) -> None:
        self.garments = garments.shipped(split)
        self.scenes = scenes.sample(count, garments=self.garments, distribution=distribution, seed=seed)
        self._about = {"distribution": distribution, "split": split, "seed": str(seed)}
        self._block = lru_cache(maxsize=4)(self._draw)
        self._captions = captions(self.scenes)

    def __len__(self) -> int:
        return len(self.scenes)

    def __iter__(self) -> Iterator[Sample]:
        for index, label in enumerate(self.scenes.factors["garment"].tolist()):
            yield Sample(f"{index:06d}", label, f"lab:wardrobe[{index}]", self._captions[index])

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The picture of a scene.  # → (3, 64, 64), or (3, size, size)"""
        index = int(sample.image_id)
        picture = self._block(index // BLOCK)[index % BLOCK]
        return picture if size in (None, picture.shape[-1]) else images.fit(picture[None], size or 0)[0]

    def provenance(self) -> dict[str, str]:
        """How the scenes were drawn."""
        shapes = hashlib.sha256(self.garments.pixels.numpy().tobytes()).hexdigest()
        return {**self._about, "garments": shapes}

    def _draw(self, block: int) -> Tensor:
        some = self.scenes[slice(block * BLOCK, (block + 1) * BLOCK)]
        with torch.no_grad():
            return scenes.render(some, self.garments)[0]
