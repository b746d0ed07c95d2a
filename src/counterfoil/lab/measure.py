"""`python -m counterfoil.lab.measure NAME …`: measure the lab's models on garments that no recipe has seen.

Every number comes with its n and a 95 % interval and is written to `measured.json` beside the weights, from which
`counterfoil.lab.cards` makes the model cards. With `--split fresh` the garments are those of Fashion-MNIST's test split that do
not ship with the package, and the file is `measured_fresh.json`: nothing was ever chosen by them.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from diffusers import AutoencoderKL, DDIMScheduler, StableDiffusionPipeline, UNet2DModel, VQModel
from torch import Tensor, nn
from transformers import AutoTokenizer, BlipForConditionalGeneration, CLIPModel, LlamaForCausalLM

from counterfoil.errors import BadData, CounterfoilError
from counterfoil.generators.autoencoders import VectorAutoencoder
from counterfoil.lab import timing
from counterfoil.lab.captions import captions, parse
from counterfoil.lab.garments import fresh, shipped
from counterfoil.lab.prompts import rewriter_prompt, singles
from counterfoil.lab.readings import Reading, mean, share
from counterfoil.lab.scenes import Scenes, render, sample
from counterfoil.lab.train.attributes import split
from counterfoil.lab.train.classifiers import RECIPES, to_grey
from counterfoil.lab.train.formats import load_timm, normalise
from counterfoil.lab.train.pool import to_bytes, to_floats
from counterfoil.lab.vocabulary import FACTORS

WEIGHTS = Path(__file__).resolve().parent / "weights"
GUIDANCE = 5.0
PAINTING_STEPS = 50
BATCH = 100
FRESH = "fresh"
FILES = {"report": "measured.json", FRESH: "measured_fresh.json"}
"""Where the readings of a split are kept; those of others are only printed."""

TARGETS: Mapping[str, Mapping[str, tuple[float | None, float | None]]] = {
    "diverse": {"full": (93, None)},
    "narrow": {"narrow": (95, None), "full": (None, 40)},
    "background-shortcut": {"background-shortcut": (97, None), "full": (None, 60)},
    "colour-shortcut": {"colour-shortcut": (97, None), "full": (None, 60)},
}
"""Least and greatest accuracy in per cent that a classifier should have on a distribution."""


@dataclass(frozen=True)
class Bench:
    """Where the models are and how much to measure."""

    weights: Path = WEIGHTS
    device: str = "cpu"
    count: int = 1000
    seed: int = 77
    split: str = "report"

    def scenes(self, distribution: str = "full") -> tuple[Scenes, Tensor]:
        """Scenes of unseen garments and their pictures, rounded as a file would round them."""
        garments = fresh() if self.split == FRESH else shipped(self.split)
        scenes = sample(self.count, garments=garments, distribution=distribution, seed=self.seed)
        images, _ = render(scenes, garments)
        return scenes.to(self.device), to_floats(to_bytes(images)).to(self.device)

    def classify(self, name: str, images: Tensor) -> Tensor:
        """A timm model's scores."""
        model = load_timm(self.folder(name)).to(self.device)
        grey = model.pretrained_cfg["input_size"][0] == 1  # type: ignore[index]
        return self.batched(lambda part: model(normalise(to_grey(part) if grey else part)), images)

    def folder(self, name: str, *inner: str) -> Path:
        """Where a model is: in the folder that was given, or else, as judges and decoders of another may be, in the package."""
        given = self.weights / name
        return (given if given.is_dir() else WEIGHTS / name).joinpath(*inner)

    def batched(self, function: Callable[[Tensor], Tensor], rows: Tensor) -> Tensor:
        """The function over batches, without gradients."""
        with torch.no_grad():
            return torch.cat([function(part) for part in rows.split(BATCH)])

    def load(self, kind: type, *folders: str) -> nn.Module:
        """A diffusers or transformers model in single precision."""
        model = kind.from_pretrained(self.folder(*folders))  # type: ignore[attr-defined]
        return model.float().to(self.device).eval().requires_grad_(False)  # type: ignore[no-any-return]


def classifier(bench: Bench, name: str) -> list[Reading]:
    """Accuracy on the distribution it was trained on and on the full one."""
    own = RECIPES[name].distribution
    targets = TARGETS.get(name, {})
    readings = []
    for distribution in dict.fromkeys((own, "full")):
        scenes, images = bench.scenes(distribution)
        right = bench.classify(name, images).argmax(1) == scenes.factors["garment"]
        low, high = targets.get(distribution, (None, None))
        readings.append(share(f"accuracy, {distribution}", right, at_least=low, at_most=high))
    return readings


def attributes(bench: Bench) -> list[Reading]:
    """Accuracy on each attribute, on scenes and on reconstructions."""
    scenes, images = bench.scenes()
    readings = _checked(bench, images, scenes, "", dict.fromkeys(FACTORS, 97.0))
    autoencoder = bench.load(AutoencoderKL, "diffusion", "vae")
    painters = bench.batched(lambda part: (autoencoder(normalise(part)).sample / 2 + 0.5).clamp(0, 1), images)
    readings += _checked(bench, _decoded(bench, _codes(bench, images)), scenes, " after vqgan", {})
    return readings + _checked(bench, painters, scenes, " after the painter's autoencoder", {})


def vqgan(bench: Bench) -> list[Reading]:
    """Fidelity of reconstructions, what survives in them, and the cost of a search step."""
    scenes, images = bench.scenes()
    model = bench.load(VQModel, "vqgan")
    codes = _codes(bench, images)
    made = _decoded(bench, codes)
    error = (made - images).square().flatten(1).mean(1)
    before, after = (bench.classify("diverse", pictures).argmax(1) == scenes.factors["garment"] for pictures in (images, made))
    cells = codes.permute(0, 2, 3, 1).flatten(0, 2)  # (N · 16 · 16, 8)
    used = len(cells.unique(dim=0)) / int(model.config.num_vq_embeddings)  # type: ignore[union-attr, arg-type]
    return [
        mean("PSNR", -10 * torch.log10(error), "dB", at_least=26),
        share("accuracy of diverse on originals", before),
        share("accuracy of diverse on reconstructions", after),
        mean("accuracy lost in reconstruction", 100.0 * (before.float() - after.float()), "points", at_most=2),
        Reading("codes in use", 100 * used, 100 * used, 100 * used, len(cells)),
        mean("decode and backward, batch 32, CPU", timing.latent_step(model), "ms an image", at_most=30),
        *_checked(bench, made, scenes, " read off reconstructions", {}),
    ]


def clip(bench: Bench) -> list[Reading]:
    """Zero-shot accuracy on each attribute, and reconstructions accepted."""
    scenes, images = bench.scenes()
    model = bench.load(CLIPModel, "clip")
    tokenizer = AutoTokenizer.from_pretrained(bench.weights / "clip")
    see = lambda part: model.get_image_features(pixel_values=normalise(part)).pooler_output  # type: ignore[operator] # noqa: E731

    def chosen(pictures: Tensor, factor: str) -> Tensor:
        tokens = tokenizer(singles(factor), padding=True, return_tensors="pt").to(bench.device)
        with torch.no_grad():
            texts = model.get_text_features(**tokens).pooler_output  # type: ignore[operator]
        pictures, texts = nn.functional.normalize(pictures, dim=1), nn.functional.normalize(texts, dim=1)
        return (pictures @ texts.T).argmax(1)

    seen = bench.batched(see, images)
    readings = []
    for factor in FACTORS:
        target = 90.0 if factor == "garment" else 95.0
        readings.append(share(f"zero-shot {factor}", chosen(seen, factor) == scenes.factors[factor], at_least=target))
    made = _decoded(bench, _codes(bench, images))
    accepted = chosen(bench.batched(see, made), "garment") == scenes.factors["garment"]
    return [*readings, share("vqgan reconstructions accepted", accepted, at_least=85)]


def diffusion(bench: Bench) -> list[Reading]:
    """Attributes of painted pictures, by the checker, and the time a picture takes."""
    scenes, _ = bench.scenes()
    texts = captions(scenes)
    pipeline = StableDiffusionPipeline.from_pretrained(bench.weights / "diffusion").to(bench.device)
    pipeline.set_progress_bar_config(disable=True)
    generator = torch.Generator(bench.device).manual_seed(bench.seed)
    made = []
    for start in range(0, len(texts), BATCH):
        made.append(
            pipeline(
                texts[start : start + BATCH],
                num_inference_steps=PAINTING_STEPS,
                guidance_scale=GUIDANCE,
                generator=generator,
                height=64,
                width=64,
                output_type="pt",
            ).images.float()
        )
    targets = {"colour": 98, "background": 98, "domain": 98, "texture": 98, "material": 92, "garment": 92}
    readings = _checked(bench, torch.cat(made), scenes, " of painted pictures", targets, together=80)
    seconds = timing.painting(bench.weights / "diffusion", steps=PAINTING_STEPS, guidance=GUIDANCE)
    return [*readings, mean("painting, CPU", seconds, "s an image", at_most=3.5)]


def blip(bench: Bench) -> list[Reading]:
    """Attributes said right in captions."""
    scenes, images = bench.scenes()
    model = bench.load(BlipForConditionalGeneration, "blip")
    tokenizer = AutoTokenizer.from_pretrained(bench.weights / "blip")
    said: list[dict[str, str]] = []
    for part in images.split(BATCH):
        tokens = model.generate(pixel_values=normalise(part), max_new_tokens=30, do_sample=False)  # type: ignore[operator]
        said += [parse(text) or {} for text in tokenizer.batch_decode(tokens, skip_special_tokens=True)]
    rows = {}
    for factor, values in FACTORS.items():
        truth = [values[i] for i in scenes.factors[factor].tolist()]
        rows[factor] = torch.tensor([one.get(factor) == value for one, value in zip(said, truth, strict=True)])
    readings = [share(f"{factor} said right", right, at_least=95) for factor, right in rows.items()]
    return [*readings, share("everything said right", torch.stack(list(rows.values())).all(0))]


def rewriter(bench: Bench) -> list[Reading]:
    """Edits that change the asked factor and nothing else."""
    scenes, _ = bench.scenes()
    texts = captions(scenes)
    model = bench.load(LlamaForCausalLM, "rewriter")
    tokenizer = AutoTokenizer.from_pretrained(bench.weights / "rewriter", padding_side="left")
    torch.manual_seed(bench.seed)
    asked = [list(FACTORS)[i % len(FACTORS)] for i in range(len(texts))]
    right = []
    for start in range(0, len(texts), BATCH):
        part = slice(start, start + BATCH)
        prompts = [rewriter_prompt(factor, text) for factor, text in zip(asked[part], texts[part], strict=True)]
        tokens = tokenizer(prompts, padding=True, return_tensors="pt").to(bench.device)
        answer = model.generate(**tokens, max_new_tokens=32, do_sample=True, top_k=0)  # type: ignore[operator]
        edits = tokenizer.batch_decode(answer[:, tokens.input_ids.shape[1] :], skip_special_tokens=True)
        right += [_changed(*row) for row in zip(texts[part], edits, asked[part], strict=True)]
    return [share("edits that change the asked factor alone", torch.tensor(right), at_least=95)]


def ddpm(bench: Bench) -> list[Reading]:
    """What survives noising to a third of the way and denoising."""
    scenes, images = bench.scenes()
    model = bench.load(UNet2DModel, "ddpm", "unet")
    scheduler = DDIMScheduler.from_pretrained(bench.weights / "ddpm" / "scheduler")
    generator = torch.Generator().manual_seed(bench.seed)

    def restored(part: Tensor) -> Tensor:
        scheduler.set_timesteps(30)
        times = scheduler.timesteps[-10:]
        noise = torch.randn(part.shape, generator=generator).to(part)
        noisy = scheduler.add_noise(normalise(part), noise, times[:1].expand(len(part)))
        for time in times:
            noisy = scheduler.step(model(noisy, time).sample, time, noisy).prev_sample
        return (noisy / 2 + 0.5).clamp(0, 1)  # type: ignore[no-any-return]

    made = bench.batched(restored, images)
    error = (made - images).square().flatten(1).mean(1)
    fidelity = mean("PSNR after noising a third of the way", -10 * torch.log10(error), "dB")
    return [fidelity, *_checked(bench, made, scenes, " kept", {})]


MEASURES: dict[str, Callable[[Bench], list[Reading]]] = {
    "vqgan": vqgan,
    "clip": clip,
    "diffusion": diffusion,
    "blip": blip,
    "rewriter": rewriter,
    "ddpm": ddpm,
    "attributes": attributes,
    **{name: partial(classifier, name=name) for name in RECIPES},
}


def measure(bench: Bench, name: str) -> list[Reading]:
    """Measure one model and write what was found beside its weights, if it is of a split that is kept."""
    if not (bench.weights / name / "config.json").is_file() and not (bench.weights / name / "model_index.json").is_file():
        raise BadData(f"{bench.weights} has no model in a folder {name}; 'python -m counterfoil.lab.train {name}' makes one")
    readings = MEASURES[name](bench)
    record = {"scenes_seed": bench.seed, "garments": bench.split, "readings": [reading.record() for reading in readings]}
    if bench.split in FILES:
        path = bench.weights / name / FILES[bench.split]
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return readings


def _checked(
    bench: Bench, images: Tensor, scenes: Scenes, what: str, targets: Mapping[str, float], *, together: float | None = None
) -> list[Reading]:
    """What the attribute checker reads off pictures against the scenes they are to show."""
    parts = split(bench.classify("attributes", images))
    right = {factor: part.argmax(1) == scenes.factors[factor] for factor, part in parts.items()}
    readings = [share(f"{factor}{what}", row, at_least=targets.get(factor)) for factor, row in right.items()]
    return [*readings, share(f"all attributes{what}", torch.stack(list(right.values())).all(0), at_least=together)]


def _codes(bench: Bench, images: Tensor) -> Tensor:
    """The codes of pictures, as the search starts from them.  # (N, 3, 64, 64) → (N, 8, 16, 16)"""
    vqgan = VectorAutoencoder(bench.load(VQModel, "vqgan"))
    return bench.batched(lambda part: vqgan.quantise(vqgan.encode(part)), images)


def _decoded(bench: Bench, codes: Tensor) -> Tensor:
    """The pictures of codes."""
    vqgan = VectorAutoencoder(bench.load(VQModel, "vqgan"))
    return bench.batched(lambda part: vqgan.decode(part).clamp(0, 1), codes)


def _changed(before: str, after: str, factor: str) -> bool:
    old, new = parse(before), parse(after)
    return old is not None and new is not None and all((old[name] != new[name]) == (name == factor) for name in FACTORS)


def main() -> None:
    """Read the command line, measure and print."""
    parser = argparse.ArgumentParser(prog="python -m counterfoil.lab.measure", description="Measure the lab's models.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(MEASURES)}")
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument(
        "--split",
        default="report",
        choices=("report", "tune", FRESH),
        help="tune: to choose, writing nothing; fresh: garments that do not ship, needs Fashion-MNIST's files",
    )
    given = parser.parse_args()
    bench = Bench(weights=given.weights, device=given.device, count=given.count, split=given.split)
    try:
        for name in given.names or MEASURES:
            for reading in measure(bench, name):
                held = {True: "held", False: "MISSED", None: ""}[reading.holds]
                interval = f"[{reading.low:.2f}, {reading.high:.2f}]"
                told = f"{reading.value:7.2f} {interval} {reading.unit} n={reading.n} {held}"
                print(f"{name:20} {reading.name:55} {told}", flush=True)
    except CounterfoilError as error:
        sys.exit(f"counterfoil: {error}")


if __name__ == "__main__":
    main()
