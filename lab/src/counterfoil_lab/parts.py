"""The lab's parts by name, as in `lab:narrow`, `lab:vqgan`, `lab:clip` and `lab:wardrobe`."""

from __future__ import annotations

import difflib
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch
import yaml
from torch import Tensor

from counterfoil.core.errors import BadData, BadSpec, UnknownName
from counterfoil.parts import images, registry
from counterfoil.parts.contracts import Generator, Part, Sample, Trait
from counterfoil.parts.editors.prompt_to_prompt import PromptToPrompt
from counterfoil.parts.encoders import clip as encoders
from counterfoil.parts.encoders.clip import TransformersEncoder
from counterfoil.parts.generators.autoencoders import autoencoder
from counterfoil.parts.generators.diffusion import diffusion
from counterfoil.parts.models.modules import ModuleModel
from counterfoil.parts.models.timm_models import TimmOptions, timm_model
from counterfoil.parts.oracles.scoring import AcceptanceRule, ClipOptions, ZeroShotOracle, clip_oracle
from counterfoil.parts.painters.diffusers import DiffusersOptions, PipelinePainter, diffusers_painter
from counterfoil_lab.captions import captions, parse
from counterfoil_lab.drawing.render import render
from counterfoil_lab.world import FACTORS, GARMENTS, Garments, Scenes, load_shipped, sample

WEIGHTS: Final = Path(__file__).parent / "weights"
"""The folder of the models that ship, one folder a model."""


def check_name(name: str, among: Iterable[str]) -> str:
    """The name, if the lab has a part of that name."""
    names = tuple(among)
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
    raise UnknownName(f"no lab part named {name!r}; {hint}")


class ScenePainter:
    """Draws the scene that a sentence of the lab's grammar states; pose, shape and details come from the seed."""

    def __init__(self, split: str = "report") -> None:
        self.made_for, self.made_for_classes = SENTENCES, GARMENTS
        self._split = split

    def paint(self, prompts: Sequence[str], seeds: Tensor) -> Tensor:
        """One image per prompt.  # (N, 3, 64, 64)"""
        rows = [self._row(prompt) for prompt in prompts]
        factors = {name: torch.tensor([row[name] for row in rows]) for name in FACTORS}
        shapes = [self._shape(GARMENTS[row["garment"]], int(seed)) for row, seed in zip(rows, seeds, strict=True)]
        return render(Scenes(factors, torch.tensor(shapes), seeds), self._garments)[0]

    def describe(self) -> list[Trait]:
        """The size of the images."""
        return [Trait("images", "64×64", "the lab")]

    def provenance(self) -> dict[str, str]:
        """The garments it has."""
        return {"garments": f"split {self._split}"}

    @cached_property
    def _garments(self) -> Garments:
        return load_shipped(self._split)

    def _row(self, prompt: str) -> dict[str, int]:
        said = parse(prompt)
        if said is None:
            raise BadSpec(
                f"lab:scenes: {prompt!r} is no sentence of the lab; write as in 'a photo of a red wool dress on a beach'"
            )
        return {name: FACTORS[name].index(value) for name, value in said.items()}

    def _shape(self, garment: str, seed: int) -> int:
        """A garment of the class, by the seed."""
        own = (self._garments.labels == GARMENTS.index(garment)).nonzero()[:, 0]
        return int(own[(seed >> 7) % len(own)])


CLASSIFIERS = (
    "narrow", "augmented", "diverse", "vit", "grey", "adversarial", "background-shortcut", "colour-shortcut",
)  # fmt: skip
GENERATORS: dict[str, tuple[Callable[..., Any], str]] = {
    "vqgan": (autoencoder, "vqgan"),
    "kl": (autoencoder, "diffusion/vae"),
    "ddpm": (diffusion, "ddpm"),
}
SENTENCES: Final = "sentences about the lab's garments"
IMAGES: Final = "images of the lab's garments"
BLOCK = 64  # scenes drawn at a time
BLOCKS = 4  # blocks kept


def folder(name: str) -> Path:
    """Return the folder of a model by name, for `lab:rewriter` wherever a folder or a hub repository is taken."""
    return WEIGHTS / check_name(name, (path.name for path in WEIGHTS.iterdir() if path.is_dir()))


def world() -> dict[str, Any]:
    """Return the lab as the default world of studies: its parts and what is known of them."""
    told: dict[str, Any] = yaml.safe_load((Path(__file__).parent / "studies.yaml").read_text(encoding="utf-8"))
    return told


def _lab_only(part: Part, subject: str = IMAGES) -> Part:
    """The part, which says that it knows nothing but the lab."""
    vars(part).update(made_for=subject, made_for_classes=GARMENTS)
    return part


def model(name: str) -> ModuleModel:
    """A classifier of the lab, as in lab:narrow; some have flaws that were planted."""
    return _lab_only(timm_model(str(WEIGHTS / check_name(name, CLASSIFIERS)), TimmOptions()))


def generator(name: str, **options: Any) -> Generator:
    """The lab's generators: lab:vqgan and lab:kl (latent ascent), lab:ddpm (guided denoising), with the options of each kind."""
    make, folder = GENERATORS[check_name(name, tuple(GENERATORS))]
    made: Generator = make(str(WEIGHTS / folder), **options)
    return _lab_only(made)


@dataclass(frozen=True)
class OracleOptions(AcceptanceRule):
    """The rule, and the prompts with `{class}` in them."""

    templates: str | Sequence[str] = "an image of a {class}"


def oracle(name: str, options: OracleOptions) -> ZeroShotOracle:
    """The lab's CLIP, given class names: lab:clip."""
    return _lab_only(clip_oracle(str(WEIGHTS / check_name(name, ("clip",))), ClipOptions(**vars(options))))


def painter(
    name: str,
    *,
    steps: int = 10,
    guidance: float = 5.0,
    scheduler: str | None = "DPMSolverMultistepScheduler",
    batch: int | None = None,
) -> PipelinePainter | ScenePainter:
    """The lab's painters for sentences of its grammar: lab:diffusion, and lab:scenes, the world itself, drawn exactly.

    The options are those of lab:diffusion. `scheduler: null` takes the one the weights come with, DDIM, which needs more
    steps; `python -m bench.lab imagenet-d` says how faithful ten steps of the default are.
    """
    if check_name(name, ("diffusion", "scenes")) == "scenes":
        return ScenePainter()
    folder = str(WEIGHTS / "diffusion")
    options = DiffusersOptions(steps=steps, guidance=guidance, scheduler=scheduler, batch=batch)
    return _lab_only(diffusers_painter(folder, options), SENTENCES)


def encoder(name: str) -> TransformersEncoder:
    """The lab's CLIP, which compares images with words: lab:clip."""
    return _lab_only(encoders.load(str(WEIGHTS / check_name(name, ("clip",))), encoders.EncoderOptions()))


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
    """A data set of scenes. Images are drawn in blocks when they are asked for and not kept."""

    classes = GARMENTS

    def __init__(self, count: int, *, distribution: str, split: str, seed: int) -> None:
        self.garments = load_shipped(split)
        self.scenes = sample(count, garments=self.garments, distribution=distribution, seed=seed)
        self._about = {"distribution": distribution, "split": split, "seed": str(seed)}
        self._blocks: OrderedDict[int, Tensor] = OrderedDict()
        self._captions = captions(self.scenes)

    def __len__(self) -> int:
        return len(self.scenes)

    def __iter__(self) -> Iterator[Sample]:
        for index, label in enumerate(self.scenes.factors["garment"].tolist()):
            yield Sample(f"{index:06d}", label, f"lab:wardrobe[{index}]", self._captions[index])

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The image of a scene.  # → (3, 64, 64), or (3, size, size)"""
        index = int(sample.image_id)
        picture = self._draw(index // BLOCK)[index % BLOCK]
        return picture if size in (None, picture.shape[-1]) else images.fit(picture[None], size or 0)[0]

    def provenance(self) -> dict[str, str]:
        """Describe how the scenes were drawn."""
        shapes = hashlib.sha256(self.garments.pixels.numpy().tobytes()).hexdigest()
        return {**self._about, "garments": shapes}

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_blocks": OrderedDict()}  # images are drawn again where they are needed

    def _draw(self, block: int) -> Tensor:
        """Draw a block of scenes, or return it if it was drawn lately."""
        if block not in self._blocks:
            some = self.scenes[slice(block * BLOCK, (block + 1) * BLOCK)]
            with torch.no_grad():
                self._blocks[block] = render(some, self.garments)[0]
            if len(self._blocks) > BLOCKS:
                self._blocks.popitem(last=False)
        return self._blocks[block]


INVERSION: Final = "edit-friendly"
COMMON: Final[dict[str, Any]] = {
    "steps": 16,
    "reweight": 1.0,
    "self_replace": 0.5,
    "cross_replace": 0.7,
    "blend": 0.6,
    "blend_by": "difference",  # the small text encoder looks everywhere a little, so that a blend by words holds nothing back
}
CHOSEN: Final[dict[str, dict[str, Any]]] = {
    "edit-friendly": {"skip": 0.1, "guidance": 1.3},
    "negative-prompt": {"refinements": 2, "guidance": 1.3},
    "null-text": {"refinements": 3, "rate": 0.05, "guidance": 3.0},
    "ddim": {"guidance": 3.0},
}
"""Settings for each inversion; `python -m bench.lab edits` measures what comes of them."""
BARS: Final[dict[str, float]] = {"image_image": 0.6, "image_text": 0.1, "directional": 0.4}
"""Bars of quality control. The lab's CLIP is trained on every attribute, so its similarities fall faster than those of a CLIP for
photographs."""


def editor(name: str, **options: Any) -> PromptToPrompt:
    """The lab's diffusion pipeline as an editor: lab:diffusion, with the options of p2p and settings of its own."""
    folder = str(WEIGHTS / check_name(name, ("diffusion",)))
    inversion = options.get("inversion", INVERSION)
    made: PromptToPrompt = registry.create(
        "editor", f"p2p:{folder}", {**COMMON, "inversion": inversion, **CHOSEN.get(inversion, {}), **options}
    )
    return _lab_only(made)
