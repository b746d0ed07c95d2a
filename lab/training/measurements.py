"""Measurements of each kind of model: what is read off its outputs, and the targets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DModel, VQModel
from lab.training.classifiers import RECIPES, attack, to_grey
from lab.training.data import to_bytes, to_floats
from lab.training.fashion_mnist import fresh, whole
from torch import Tensor, nn
from transformers import AutoTokenizer, BlipForConditionalGeneration, CLIPModel, LlamaForCausalLM

from counterfoil.core.errors import UnknownName
from counterfoil.parts import weights as weight_files
from counterfoil.parts.generators.autoencoders import VectorAutoencoder
from counterfoil_lab.captions import captions, parse, rewriter_prompt, singles
from counterfoil_lab.checker import Checker, Reading, load_timm, mean, normalise, points_lost, share
from counterfoil_lab.drawing.render import render
from counterfoil_lab.parts import WEIGHTS
from counterfoil_lab.world import FACTORS, Garments, Scenes, load_shipped, sample

BATCH = 100
SEEDS = {"tune": 500_001, "report": 500_002, "fresh": 500_003, "whole": 500_004}
"""Seeds of the scenes of each split: no two share a scene, and no recipe's pool draws from these seeds."""
TUNE, REPORT, FRESH, WHOLE = SEEDS


@dataclass(frozen=True)
class Bench:
    """The models' folders and the scenes they are measured on."""

    weights: Path = WEIGHTS
    device: str = "cpu"
    count: int = 1000
    split: str = REPORT
    data: Path | None = None
    """The folder with Fashion-MNIST's idx files, for the splits that do not ship; None for where they usually are."""
    hashes: dict[str, str] = field(default_factory=dict, compare=False)
    """SHA-256 of every weight file that was loaded, by its path below the folder of the lab's models."""

    @property
    def seed(self) -> int:
        """Return what the scenes are drawn from."""
        return SEEDS[self.split]

    def garments(self) -> Garments:
        """The shapes of the split."""
        if self.split not in SEEDS:
            raise UnknownName(f"no split named {self.split!r}; choose one of {', '.join(SEEDS)}")
        if self.split in (FRESH, WHOLE):
            return fresh(self.data) if self.split == FRESH else whole(self.data)
        return load_shipped(self.split)

    def scenes(self, distribution: str = "full") -> tuple[Scenes, Tensor]:
        """Scenes of the split's garments and their images, rounded as a file would round them."""
        garments = self.garments()
        scenes = sample(self.count, garments=garments, distribution=distribution, seed=self.seed)
        images, _ = render(scenes, garments)
        return scenes.to(self.device), to_floats(to_bytes(images)).to(self.device)

    def undrawn(self) -> Scenes:
        """The scenes of the full distribution without their images, for models that are given words: garments play no part."""
        return sample(self.count, garments=load_shipped(REPORT), seed=self.seed).to(self.device)

    def folder(self, name: str, *inner: str) -> Path:
        """Find a model and note its hashes: in the folder that was given, or else, as judges and decoders of another may
        be, in the package."""
        given = self.weights / name
        root = self.weights if given.is_dir() else WEIGHTS
        found = (root / name).joinpath(*inner)
        for path in sorted(found.rglob("*.safetensors")):
            key = path.relative_to(root).as_posix()
            if key not in self.hashes:
                self.hashes[key] = weight_files.file_sha256(path)
        return found

    def load(self, kind: type, name: str, *inner: str) -> nn.Module:
        """A diffusers or transformers model in single precision."""
        model = kind.from_pretrained(self.folder(name, *inner))  # type: ignore[attr-defined]
        return model.float().to(self.device).eval().requires_grad_(False)  # type: ignore[no-any-return]

    def tokenizer(self, name: str, **options: Any) -> Any:
        """The tokenizer that comes with a model."""
        return AutoTokenizer.from_pretrained(self.folder(name), **options)

    def classifier(self, name: str) -> Callable[[Tensor], Tensor]:
        """A timm model's scores of images."""
        model = load_timm(self.folder(name)).to(self.device)
        grey = model.pretrained_cfg["input_size"][0] == 1  # type: ignore[index]
        return lambda images: model(normalise(to_grey(images) if grey else images))

    def classify(self, name: str, images: Tensor) -> Tensor:
        """The classes that a timm model sees.  # (N, 3, 64, 64) → (N,)"""
        return self.in_batches(self.classifier(name), images).argmax(1)

    def read(self, images: Tensor) -> dict[str, Tensor]:
        """The value of each factor that the attribute checker sees.  # (N, 3, 64, 64) → {factor: (N,)}"""
        seen = Checker(self.device, folder=self.folder("attributes")).read(images)
        return {factor: values.to(self.device) for factor, values in seen.items()}

    def in_batches(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """The function over batches, without gradients."""
        with torch.no_grad():
            return torch.cat([function(part) for part in rows.split(BATCH)])

    def codes(self, images: Tensor) -> Tensor:
        """The vqgan's codes of images, as the search starts from them.  # (N, 3, 64, 64) → (N, 8, 16, 16)"""
        vqgan = VectorAutoencoder(self.load(VQModel, "vqgan"))
        return self.in_batches(lambda part: vqgan.quantise(vqgan.encode(part)), images)

    def decode(self, codes: Tensor) -> Tensor:
        """The vqgan's images of codes."""
        vqgan = VectorAutoencoder(self.load(VQModel, "vqgan"))
        return self.in_batches(lambda part: vqgan.decode(part).clamp(0, 1), codes)


def attributes(bench: Bench) -> list[Reading]:
    """Accuracy on each attribute, on scenes and on reconstructions."""
    scenes, images = bench.scenes()
    autoencoder = bench.load(AutoencoderKL, "diffusion", "vae")
    painters = bench.in_batches(lambda part: (autoencoder(normalise(part)).sample / 2 + 0.5).clamp(0, 1), images)
    return [
        *shares(read_right(bench, images, scenes), "", dict.fromkeys(FACTORS, 97.0)),
        *shares(read_right(bench, bench.decode(bench.codes(images)), scenes), " after vqgan"),
        *shares(read_right(bench, painters, scenes), " after the painter's autoencoder"),
    ]


def read_right(bench: Bench, images: Tensor, scenes: Scenes) -> dict[str, Tensor]:
    """Tell whether the checker reads each factor off each image as its scene has it.  # → {factor: (N,) bool}"""
    return {factor: seen == scenes.factors[factor] for factor, seen in bench.read(images).items()}


def shares(
    right: Mapping[str, Tensor], what: str, targets: Mapping[str, float] | None = None, *, together: float | None = None
) -> list[Reading]:
    """The share read right of each factor, and of all at once."""
    readings = [share(f"{factor}{what}", row, at_least=(targets or {}).get(factor)) for factor, row in right.items()]
    return [*readings, share(f"all attributes{what}", torch.stack(list(right.values())).all(0), at_least=together)]


CLASSIFIER_TARGETS: Mapping[str, Mapping[str, tuple[float | None, float | None]]] = {
    "diverse": {"full": (93, None)},
    "narrow": {"narrow": (95, None), "full": (None, 40)},
    "background-shortcut": {"background-shortcut": (97, None), "full": (None, 60)},
    "colour-shortcut": {"colour-shortcut": (97, None), "full": (None, 60)},
}
"""Least and greatest accuracy in per cent that a classifier should have on a distribution."""

ATTACKED = ("narrow", "augmented", "adversarial")
"""The models whose accuracy under attack says what adversarial training bought."""
ATTACK_SIZE = 6 / 255
ATTACK_STEPS = 10
ATTACK_COUNT = 1000  # scenes; each costs as much as thirty others


def classifier(bench: Bench, name: str) -> list[Reading]:
    """Accuracy on the distribution it was trained on and on the full one, and under attack where that is asked of it."""
    own = RECIPES[name].distribution
    targets = CLASSIFIER_TARGETS.get(name, {})
    readings = []
    for distribution in dict.fromkeys((own, "full")):
        scenes, images = bench.scenes(distribution)
        labels = scenes.factors["garment"]
        low, high = targets.get(distribution, (None, None))
        right = bench.classify(name, images) == labels
        readings.append(share(f"accuracy, {distribution}", right, at_least=low, at_most=high))
        if distribution == own and name in ATTACKED:
            stood = withstood(bench, name, images[:ATTACK_COUNT], labels[:ATTACK_COUNT])
            readings.append(share(f"accuracy, {own}, attacked (PGD, 6/255, {ATTACK_STEPS} steps)", stood))
    return readings


def withstood(bench: Bench, name: str, images: Tensor, labels: Tensor) -> Tensor:
    """Tell whether each image is still told right after projected gradient ascent on the model's own loss.  # → (N,) bool"""
    scores = bench.classifier(name)
    torch.manual_seed(bench.seed)  # the attack starts from a random point
    right = []
    for some, classes in zip(images.split(BATCH), labels.split(BATCH), strict=True):
        moved = attack(scores, some, classes, size=ATTACK_SIZE, steps=ATTACK_STEPS)
        with torch.no_grad():
            right.append(scores(moved).argmax(1) == classes)
    return torch.cat(right)


READABLE = 5.0
"""An attribute is still readable if the checker's accuracy on it is at most so many points lower than on the originals."""


def vqgan(bench: Bench) -> list[Reading]:
    """Fidelity of reconstructions and what survives in them."""
    scenes, images = bench.scenes()
    book = int(bench.load(VQModel, "vqgan").config.num_vq_embeddings)  # type: ignore[union-attr, arg-type]
    codes = bench.codes(images)
    made = bench.decode(codes)
    before, after = (bench.classify("diverse", pictures) == scenes.factors["garment"] for pictures in (images, made))
    originals, reconstructions = read_right(bench, images, scenes), read_right(bench, made, scenes)
    cells = codes.permute(0, 2, 3, 1).flatten(0, 2)  # (N · 16 · 16, 8)
    used = 100 * len(cells.unique(dim=0)) / book
    return [
        mean("PSNR", _fidelity(made, images), "dB", at_least=26),
        share("accuracy of diverse on originals", before),
        share("accuracy of diverse on reconstructions", after),
        points_lost("accuracy lost in reconstruction", before, after, at_most=2),
        Reading("codes in use", used, used, used, len(cells)),
        *shares(reconstructions, " read off reconstructions"),
        *(
            points_lost(f"{factor} lost in reconstruction", right, reconstructions[factor], at_most=READABLE)
            for factor, right in originals.items()
        ),
    ]


def ddpm(bench: Bench) -> list[Reading]:
    """Return what survives noising to a third of the way and denoising."""
    scenes, images = bench.scenes()
    model = bench.load(UNet2DModel, "ddpm", "unet")
    scheduler = DDIMScheduler.from_pretrained(bench.folder("ddpm", "scheduler"))
    generator = torch.Generator().manual_seed(bench.seed)

    def restore(part: Tensor) -> Tensor:
        scheduler.set_timesteps(30)
        times = scheduler.timesteps[-10:]
        noise = torch.randn(part.shape, generator=generator).to(part)
        noisy = scheduler.add_noise(normalise(part), noise, times[:1].expand(len(part)))
        for time in times:
            noisy = scheduler.step(model(noisy, time).sample, time, noisy).prev_sample
        return (noisy / 2 + 0.5).clamp(0, 1)  # type: ignore[no-any-return]

    made = bench.in_batches(restore, images)
    fidelity = mean("PSNR after noising a third of the way", _fidelity(made, images), "dB")
    return [fidelity, *shares(read_right(bench, made, scenes), " kept")]


def _fidelity(made: Tensor, images: Tensor) -> Tensor:
    """Peak signal-to-noise ratio of each image.  # (N, 3, H, W) → (N,)"""
    return -10 * torch.log10((made - images).square().flatten(1).mean(1))


def blip(bench: Bench) -> list[Reading]:
    """Attributes stated right in captions."""
    scenes, images = bench.scenes()
    model = bench.load(BlipForConditionalGeneration, "blip")
    tokenizer = bench.tokenizer("blip")
    stated: list[dict[str, str]] = []
    for part in images.split(BATCH):
        tokens = model.generate(pixel_values=normalise(part), max_new_tokens=30, do_sample=False)  # type: ignore[operator]
        stated += [parse(text) or {} for text in tokenizer.batch_decode(tokens, skip_special_tokens=True)]
    rows = {}
    for factor, values in FACTORS.items():
        truth = [values[i] for i in scenes.factors[factor].tolist()]
        rows[factor] = torch.tensor([one.get(factor) == value for one, value in zip(stated, truth, strict=True)])
    readings = [share(f"{factor} stated right", right, at_least=95) for factor, right in rows.items()]
    return [*readings, share("everything stated right", torch.stack(list(rows.values())).all(0))]


def rewriter(bench: Bench) -> list[Reading]:
    """Edits that change the asked factor and nothing else."""
    texts = captions(bench.undrawn())
    model = bench.load(LlamaForCausalLM, "rewriter")
    tokenizer = bench.tokenizer("rewriter", padding_side="left")
    torch.manual_seed(bench.seed)
    asked = [list(FACTORS)[i % len(FACTORS)] for i in range(len(texts))]
    right = []
    for start in range(0, len(texts), BATCH):
        part = slice(start, start + BATCH)
        prompts = [rewriter_prompt(factor, text) for factor, text in zip(asked[part], texts[part], strict=True)]
        tokens = tokenizer(prompts, padding=True, return_tensors="pt").to(bench.device)
        answer = model.generate(**tokens, max_new_tokens=32, do_sample=True, top_k=0)  # type: ignore[operator]
        edits = tokenizer.batch_decode(answer[:, tokens.input_ids.shape[1] :], skip_special_tokens=True)
        right += [_change(*row) for row in zip(texts[part], edits, asked[part], strict=True)]
    return [share("edits that change the asked factor alone", torch.tensor(right), at_least=95)]


def _change(before: str, after: str, factor: str) -> bool:
    old, new = parse(before), parse(after)
    return old is not None and new is not None and all((old[name] != new[name]) == (name == factor) for name in FACTORS)


GUIDANCE = 5.0
STEPS = 50
PAINTED_TARGETS = {"colour": 98.0, "background": 98.0, "domain": 98.0, "texture": 98.0, "material": 92.0, "garment": 92.0}
BY_CLIP = ("garment", "material", "texture")


def diffusion(bench: Bench) -> list[Reading]:
    """Attributes of painted images: by the checker, which gave the decoders their loss, and the hardest by others."""
    scenes = bench.undrawn()
    texts = captions(scenes)
    pipeline = StableDiffusionPipeline.from_pretrained(bench.folder("diffusion")).to(bench.device)
    pipeline.set_progress_bar_config(disable=True)
    chance = torch.Generator().manual_seed(bench.seed)  # of the CPU, so that every device starts from the same noise
    made = []
    for start in range(0, len(texts), BATCH):
        made.append(
            pipeline(
                texts[start : start + BATCH],
                num_inference_steps=STEPS,
                guidance_scale=GUIDANCE,
                generator=chance,
                height=64,
                width=64,
                output_type="pt",
            ).images.float()
        )
    pictures = torch.cat(made)
    judge = ZeroShot(bench)
    seen = judge.see(pictures)
    garment = bench.classify("diverse", pictures) == scenes.factors["garment"]
    return [
        *shares(read_right(bench, pictures, scenes), " of painted images", PAINTED_TARGETS, together=80),
        share("garment of painted images, by diverse", garment),
        *(
            share(f"{factor} of painted images, by clip", judge.choose(seen, factor) == scenes.factors[factor])
            for factor in BY_CLIP
        ),
    ]


class ZeroShot:
    """The lab's CLIP as a judge of images."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._model = bench.load(CLIPModel, "clip")
        self._tokenizer = bench.tokenizer("clip")

    def see(self, images: Tensor) -> Tensor:
        """Images as points of unit length.  # (N, 3, 64, 64) → (N, D)"""

        def features(part: Tensor) -> Tensor:
            found: Tensor = self._model.get_image_features(pixel_values=normalise(part)).pooler_output  # type: ignore[operator]
            return found

        return nn.functional.normalize(self._bench.in_batches(features, images), dim=1)

    def choose(self, seen: Tensor, factor: str) -> Tensor:
        """The value of a factor whose caption is nearest to each image.  # (N, D) → (N,)"""
        tokens = self._tokenizer(singles(factor), padding=True, return_tensors="pt").to(self._bench.device)
        with torch.no_grad():
            texts = self._model.get_text_features(**tokens).pooler_output  # type: ignore[operator]
        return (seen @ nn.functional.normalize(texts, dim=1).T).argmax(1)


def clip(bench: Bench) -> list[Reading]:
    """Zero-shot accuracy on each attribute, and reconstructions accepted."""
    scenes, images = bench.scenes()
    judge = ZeroShot(bench)
    seen = judge.see(images)
    readings = []
    for factor in FACTORS:
        target = 90.0 if factor == "garment" else 95.0
        readings.append(share(f"zero-shot {factor}", judge.choose(seen, factor) == scenes.factors[factor], at_least=target))
    made = judge.see(bench.decode(bench.codes(images)))
    accepted = judge.choose(made, "garment") == scenes.factors["garment"]
    return [*readings, share("vqgan reconstructions accepted", accepted, at_least=85)]
