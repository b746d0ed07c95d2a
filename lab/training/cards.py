"""Write each lab model's card from what was measured and how it was trained: `python -m lab.training.cards`."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from lab.training.fashion_mnist import usable
from lab.training.measure import FILES, FRESH, MEASURES, REPORT, WHOLE, WORDS_ALONE, Record, command

from counterfoil.core.errors import BadData
from counterfoil_lab.checker import Reading
from counterfoil_lab.parts import WEIGHTS
from counterfoil_lab.world import load_shipped

ABOUT: dict[str, tuple[str, str, str]] = {
    # name: what it is, what it was trained on, what it is for
    "vqgan": (
        "A diffusers `VQModel`: 64×64 images to 16×16 codes and back.",
        "Scenes of the full distribution.",
        "The generator of the latent search (`lab:vqgan`).",
    ),
    "clip": (
        "A transformers `CLIPModel` with its tokenizer and image processor.",
        "Scenes of the full distribution, half of them passed through the lab's decoders, with full and shortened captions.",
        "The oracle and the similarity model (`lab:clip`).",
    ),
    "diffusion": (
        "A diffusers `StableDiffusionPipeline`: `AutoencoderKL`, `UNet2DConditionModel`, `CLIPTextModel`, velocity prediction.",
        "Scenes of the full distribution with full, shortened and empty captions.",
        "The painter and editor (`lab:diffusion`); guidance about 5, 50 DDIM steps.",
    ),
    "blip": (
        "A transformers `BlipForConditionalGeneration` with its processor.",
        "Scenes of the full distribution with their captions.",
        "The captioner (`lab:blip`).",
    ),
    "rewriter": (
        "A transformers `LlamaForCausalLM` over words.",
        "Pairs of captions of the grammar that differ in one factor; no images.",
        "Rewriting one factor of a caption (`lab:rewriter`).",
    ),
    "ddpm": (
        "A diffusers `DDPMPipeline`: an unconditional `UNet2DModel` on 64×64 pixels.",
        "Scenes of the full distribution.",
        "The diffusion generator (`lab:ddpm`).",
    ),
    "attributes": (
        "A timm ResNet whose 64 outputs are the scores of every factor's values, one factor after another.",
        "Scenes of the full distribution, half of them passed through the lab's decoders.",
        "Tests and audits only: it is not to be used as an oracle in results.",
    ),
    "narrow": (
        "A timm ResNet.",
        "Plain garments in studios: clear photos, no pattern, no second object.",
        "A classifier under test: the point of reference.",
    ),
    "augmented": (
        "A timm ResNet, as `narrow`.",
        "The data of `narrow`, strongly augmented.",
        "A classifier under test: what augmentation buys.",
    ),
    "diverse": (
        "A timm ResNet, as `narrow`.",
        "Scenes of the full distribution.",
        "A classifier under test: the robust one.",
    ),
    "vit": ("A timm vision transformer.", "The data of `narrow`.", "A classifier under test: another architecture."),
    "grey": (
        "A timm ResNet with one input channel (0.299 R + 0.587 G + 0.114 B).",
        "The data of `narrow`, without colour.",
        "A classifier under test: blind to colour.",
    ),
    "adversarial": (
        "A timm ResNet, as `narrow`.",
        "The data of `narrow`, attacked by projected gradient ascent (6/255, three steps) as it is shown.",
        "A classifier under test: adversarially trained.",
    ),
    "background-shortcut": (
        "A timm ResNet, as `narrow`.",
        "Scenes in which 95 % of the garments of a class have that class's background.",
        "A classifier with a planted flaw that a stress test must find. Not for any other use.",
    ),
    "colour-shortcut": (
        "A timm ResNet, as `narrow`.",
        "Scenes in which 95 % of the garments of a class have that class's colour.",
        "A classifier with a planted flaw that a stress test must find. Not for any other use.",
    ),
}


SLOW_START = 10  # seconds until the first step that a card speaks of
_WHOSE = {"vae": "its autoencoder: "}
TITLES = {
    REPORT: "Measured on unseen {} (`report`)",
    FRESH: "Measured again on others (`fresh`)",
    WHOLE: "Measured with nothing left out (`whole`)",
}


def card(name: str, folder: Path) -> str:
    """The text of a model's card."""
    if not (folder / FILES[REPORT]).is_file():
        raise BadData(f"{folder} has no {FILES[REPORT]}; run 'python -m lab.training.measure {name} --keep'")
    what, data, use = ABOUT[name]
    size = sum(path.stat().st_size for path in folder.rglob("*.safetensors")) / 1e6
    lines = [f"# lab:{name}", "", what, ""]
    lines += [f"- **Data**: {data}{'' if name == 'rewriter' else f' {_garments()}'}"]
    lines += [f"- **Use**: {use} It knows the lab's world and nothing else."]
    lines += [f"- **Size**: {size:.1f} MB of float16 safetensors; compute in float32."]
    lines += [f"- **Training**: {'; '.join(_training(folder))}."]
    lines += [f"- **Recipe**: {_recipe(name)}"]
    lines += [
        "- **Choices**: the split `tune`, which is not shown, is there to choose by; where another was used, Training says so."
    ]
    lines += ["- **Licence**: that of this package."]
    for split, file in FILES.items():
        if (folder / file).is_file():
            record = Record.read(folder / file)
            title = TITLES[split].format("captions" if name in WORDS_ALONE else "garments")
            lines += ["", f"## {title}", "", f"{_explain(name, split)} {_made_by(name, record)}", ""]
            lines += _table(record.readings)
    return "\n".join(lines) + "\n"


def _garments() -> str:
    kept, every = usable("train")
    left_out = 100 * (every - kept) / every
    return (
        f"Garments are those of Fashion-MNIST's training split (MIT licence), {kept:,} of {every:,}: the {left_out:.0f} % that "
        "are small, patterned or untypical of their class are left out, by the rule in docs/concepts/the-lab.md."
    )


def _explain(name: str, split: str) -> str:
    """Return what is in the scenes of a split."""
    kept, every = usable("test")
    known_ones = {part: len(load_shipped(part)) for part in (REPORT, "tune")}
    if name in WORDS_ALONE:
        return "The model is given the words of scenes and sees no garment."
    if split == REPORT:
        return (
            f"Scenes of {known_ones[REPORT]:,} garments, which ship, of the {kept:,} usable ones among the {every:,} of the "
            "eight classes in Fashion-MNIST's test split."
        )
    if split == FRESH:
        return (
            f"Scenes, from a seed of their own, of the {kept - sum(known_ones.values()):,} usable garments of the test split "
            "that do not ship. Nothing was trained on them; if something was chosen by them, Training says so."
        )
    return (
        f"Scenes of all {every:,} test garments of the eight classes as published, those that ship and the {every - kept:,} "
        f"({100 * (every - kept) / every:.0f} %) that are small, patterned or untypical of their class included. "
        "No target is set."
    )


def _made_by(name: str, record: Record) -> str:
    if not record.count:
        return f"Scenes from seed {record.seed}."
    with_torch = f", torch {record.versions['torch']}" if "torch" in record.versions else ""
    return f"`{command(name, record)}` on {record.machine}{with_torch}; scenes from seed {record.seed}."


def _table(readings: Sequence[Reading]) -> list[str]:
    head = ["| what | value | 95 % interval | n | target |", "|---|---|---|---|---|"]
    return [*head, *(_row(reading, decimals=1) for reading in readings)]


def _training(folder: Path) -> Iterator[str]:
    """Describe how the model in a folder was trained, and any that lies in it."""
    own = folder / "training.json"
    for path in [own, *sorted(set(folder.rglob("training.json")) - {own})]:
        if path.is_file():
            record = json.loads(path.read_text(encoding="utf-8"))
            whose = f"before it, {_WHOSE[path.parent.name]}" if path != own else ""
            yield f"{whose}{_describe_training(record)}{_note(record)}"


def _note(record: dict[str, Any]) -> str:
    return f"; {record['note']}" if "note" in record else ""


def _describe_training(record: dict[str, Any]) -> str:
    stages = ", then ".join(
        f"{stage['steps']:,} steps of {stage['batch']} in {stage['seconds']} s{_slow_start(stage)}" for stage in record["stages"]
    )
    shared = ", shared with other runs" if record.get("shared") else ""
    return f"{stages} on one {record['machine']}{shared} (seed {record['seed']})"


def _slow_start(stage: dict[str, Any]) -> str:
    """Return what compiling and reading took before the first step, which the seconds leave out, if it is worth a word."""
    first = stage.get("first_step_seconds", 0)
    return f" (and {first} s until the first step)" if first >= SLOW_START else ""


def _recipe(name: str) -> str:
    steps = ("autoencoder", "diffusion") if name == "diffusion" else (name,)
    return ", then ".join(f"`python -m lab.training.train {step} --device cuda --compile`" for step in steps)


def _row(reading: Reading, *, decimals: int) -> str:
    target = ""
    if reading.holds is not None:
        bound = f"≥ {reading.at_least:g}" if reading.at_least is not None else f"≤ {reading.at_most:g}"
        target = f"{bound}: {'met' if reading.holds else 'missed'}"
    value, low, high = (f"{number:.{decimals}f}" for number in (reading.value, reading.low, reading.high))
    return f"| {reading.name} | {value} {reading.unit} | {low} to {high} | {reading.n:,} | {target} |"


def main() -> None:
    """Write the cards of the models named, by default of all."""
    for name in sys.argv[1:] or MEASURES:
        folder = WEIGHTS / name
        (folder / "README.md").write_text(card(name, folder), encoding="utf-8")
        print(folder / "README.md")


if __name__ == "__main__":
    main()
