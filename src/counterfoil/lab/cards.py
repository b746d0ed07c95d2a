"""`python -m counterfoil.lab.cards`: write each lab model's card from what was measured and how it was trained.

With `--again FOLDER`, the card of the model that ships also tells of another, which the recipe made from the start once more and
which was measured where it lies: what it took, and whether it came out as good.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from counterfoil.errors import BadData, CounterfoilError
from counterfoil.lab.measure import FILES, FRESH, MEASURES, WEIGHTS, Bench, measure
from counterfoil.lab.readings import Reading

AGAIN = "again.json"

ABOUT: dict[str, tuple[str, str, str]] = {
    # name: what it is, what it was trained on, what it is for
    "vqgan": (
        "A diffusers `VQModel`: 64×64 pictures to 16×16 codes and back.",
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
        "Pairs of captions of the grammar that differ in one factor; no pictures.",
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


def card(name: str, folder: Path) -> str:
    """The text of a model's card."""
    what, data, use = ABOUT[name]
    record = json.loads((folder / FILES["report"]).read_text(encoding="utf-8"))
    size = sum(path.stat().st_size for path in folder.rglob("*.safetensors")) / 1e6
    lines = [f"# lab:{name}", "", what, ""]
    lines += [f"- **Data**: {data} Garments are those of Fashion-MNIST's training split (MIT licence)."]
    lines += [f"- **Use**: {use} It knows the lab's world and nothing else."]
    lines += [f"- **Size**: {size:.1f} MB of float16 safetensors; compute in float32."]
    lines += [f"- **Training**: {'; '.join(_trained(path) for path in sorted(folder.rglob('training.json')))}."]
    lines += [f"- **Recipe**: `python -m counterfoil.lab.train {name}`", "- **Licence**: that of this package.", ""]
    lines += [f"## Measured on unseen garments ({record['garments']} split, scenes from seed {record['scenes_seed']})", ""]
    lines += _table(record)
    fresh = folder / FILES[FRESH]
    if fresh.is_file():
        lines += ["", "## Measured again on garments that no choice was made by", ""]
        lines += ["Those of Fashion-MNIST's test split that do not ship with the package.", ""]
        lines += _table(json.loads(fresh.read_text(encoding="utf-8")))
    if (folder / AGAIN).is_file():
        lines += ["", *_made_again(json.loads((folder / AGAIN).read_text(encoding="utf-8")))]
    return "\n".join(lines) + "\n"


def keep_again(name: str, made: Path, *, weights: Path) -> None:
    """Put what a model made again took, and what was measured of it, beside the one that ships."""
    files = {"training": "training.json", **FILES}
    missing = [file for file in files.values() if not (made / file).is_file()]
    if missing:
        raise BadData(f"{made} has no {' and no '.join(missing)}; train lab:{name} into it and measure it on both splits")
    record = {part: json.loads((made / file).read_text(encoding="utf-8")) for part, file in files.items()}
    (weights / name / AGAIN).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _made_again(record: dict[str, Any]) -> list[str]:
    told = f"{_stages(record['training'])} on one {record['training']['machine']} (seed {record['training']['seed']})"
    return [
        "## Made again by its recipe, from the start",
        "",
        f"Not the weights that ship, but others that the recipe gave: {told}. On the report garments:",
        "",
        *_table(record["report"]),
        "",
        "On garments that no choice was made by:",
        "",
        *_table(record[FRESH]),
    ]


def _table(record: dict[str, Any]) -> list[str]:
    head = ["| what | value | 95 % interval | n | target |", "|---|---|---|---|---|"]
    return [*head, *(_row(Reading(**reading)) for reading in record["readings"])]


def _trained(path: Path) -> str:
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    note = f"; {record['note']}" if "note" in record else ""
    return f"{_stages(record)} on one {record['machine']}, shared with other runs (seed {record['seed']}){note}"


def _stages(record: dict[str, Any]) -> str:
    return ", then ".join(f"{stage['steps']:,} steps of {stage['batch']} in {stage['seconds']} s" for stage in record["stages"])


def _row(reading: Reading) -> str:
    target = ""
    if reading.holds is not None:
        bound = f"≥ {reading.at_least:g}" if reading.at_least is not None else f"≤ {reading.at_most:g}"
        target = f"{bound}: {'met' if reading.holds else 'missed'}"
    value = f"{reading.value:.1f} {reading.unit}"
    return f"| {reading.name} | {value} | {reading.low:.1f} to {reading.high:.1f} | {reading.n:,} | {target} |"


def main() -> None:
    """Write the cards, measuring first what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m counterfoil.lab.cards", description="Write the lab's model cards.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(MEASURES)}")
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--measure", action="store_true", help="measure again before writing")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--again", type=Path, metavar="FOLDER", help="tell of this one, made again and measured; for one NAME")
    given = parser.parse_args()
    if given.again is not None and len(given.names) != 1:
        parser.error("--again is about one model; name it")
    try:
        if given.again is not None:
            keep_again(given.names[0], given.again, weights=given.weights)
        for name in given.names or MEASURES:
            folder = given.weights / name
            if given.measure or not (folder / FILES["report"]).is_file():
                measure(Bench(weights=given.weights, device=given.device, count=given.count), name)
            (folder / "README.md").write_text(card(name, folder), encoding="utf-8")
            print(folder / "README.md")
    except CounterfoilError as error:
        sys.exit(f"counterfoil: {error}")


if __name__ == "__main__":
    main()
