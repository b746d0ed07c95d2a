"""The three demos: small classifiers on the lab, offline, within minutes. `counterfoil demo` runs them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from counterfoil import protocols
from counterfoil.cli import echo

FMR_MODELS = ("lab:narrow", "lab:augmented", "lab:diverse")
FMR_ROWS = ("SA", "PA", "FMR", "FMR_matched", "PA_reconstruction", "PA_random", "VR", "steps")

LANCE_MODELS = ("lab:background-shortcut", "lab:colour-shortcut", "lab:diverse")
LANCE_FACTORS = ("object", "background", "adjective", "domain", "weather")
LANCE: dict[str, Any] = {
    "protocol": "lance",
    "model": LANCE_MODELS[0],
    "others": list(LANCE_MODELS[1:]),
    "data": {"name": "lab:wardrobe", "distribution": "planted"},
    "captioner": "lab:blip",
    "rewriter": "lab:lexicon",
    "editor": {"name": "lab:diffusion", "steps": 8},  # few steps, for speed
    "encoder": "lab:clip",
    "oracle": "lab:clip",
    "edit": {"factors": list(LANCE_FACTORS), "per_factor": {"adjective": 3}},  # a colour, a material and a texture
    "quality": {"image_image": 0.6, "image_text": 0.1, "directional": 0.4},  # those of the lab, chosen on `split: tune`
    "realism": {"language": "lab:rewriter"},
}
"""The LANCE demo's run; the automated test of the planted flaws reads it too."""
BIASES = 3

SURROGATES = ("lab:narrow", "lab:vit", "lab:grey", "lab:colour-shortcut")
TESTED = ("lab:augmented", "lab:adversarial", "lab:background-shortcut", "lab:diverse")
CONTROL = "lab:diverse"
"""Trained on the whole world: what it recognises in the mined set is there to be recognised."""
PAINTED = 216


def _fmr(images: int | None, out: Path) -> None:
    """Test three classifiers with images made against each of them."""
    from counterfoil.core.progress import watching
    from counterfoil.protocols.reading import write_report

    echo("Three classifiers that look alike on a fixed test set. New images are made against each of them;")
    echo("the lab's CLIP decides which still show the garment. How much accuracy is left?\n")
    runs = []
    for model in FMR_MODELS:
        spec = protocols.parse(
            {"model": model, "data": "lab:wardrobe", "generator": "lab:kl", "oracle": "lab:clip", "limit": images or 72}
        )
        with watching(model) as (watch, tell):
            runs.append(protocols.run(spec, out / model.replace(":", "-"), watch=watch, tell=tell))
    _print({model: run.results or {} for model, run in zip(FMR_MODELS, runs, strict=True)}, {name: name for name in FMR_ROWS})
    echo("\nIn per cent with 95 % intervals, but for steps, which are counted. FMR = PA / SA is the share of accuracy kept,")
    echo("FMR_matched the same on the accepted images alone. PA_reconstruction and PA_random are controls: accuracy after")
    echo("the generator alone, and after steps in random directions.")
    echo(f"\nReport: {write_report(runs, out / 'report').resolve()}")


def _lance(images: int | None, out: Path) -> None:
    """Edit one set of images and test three classifiers on it, two of which have a planted shortcut."""
    from counterfoil.core.progress import watching
    from counterfoil.protocols.lance.results import lance_results
    from counterfoil.protocols.reading import write_report

    echo("Three classifiers that look alike on a fixed test set. Two of them have learned a shortcut: one relies on the")
    echo("background, one on the colour. One set of edited images, made without querying any of them, tells which.\n")
    spec = protocols.parse({**LANCE, "limit": images or 40})
    with watching("lance") as (watch, tell):
        run = protocols.run(spec, out / "lance", watch=watch, tell=tell)
    results = {model: lance_results(run, seed=spec.seed, model=model) for model in LANCE_MODELS}
    flat = {
        model: {
            "sources, %": found["accuracy_source"],
            **{factor: entry["drop"] for factor, entry in found["factors"].items()},
            "reconstruction": found["drop_reconstruction"],
        }
        for model, found in results.items()
    }
    _print(flat, {name: name for name in ("sources, %", *LANCE_FACTORS, "reconstruction")})
    echo("\nAccuracy on the sources, and points of it lost to edits of each factor, with 95 % intervals.\n")
    for model, found in results.items():
        for line in _shortcut(model, found):
            echo(line)
    counts = results[LANCE_MODELS[0]]["counts"]
    echo(f"\n{counts['accepted']} edits of {counts['readable']} images accepted.")
    echo(f"Report: {write_report([run], out / 'lance-report').resolve()}")


def imagenet_d_spec(images: int = PAINTED) -> Any:
    """Return the run of the ImageNet-D demo: the lab's grid, by default each pair once."""
    from counterfoil.protocols.imagenet_d.grid import read_yaml

    return protocols.parse(
        {
            "protocol": "imagenet-d",
            "grid": {**read_yaml("lab", what="grid"), "images": max(1, -(-images // PAINTED))},
            "limit": images,
            "painter": "lab:diffusion",
            "surrogates": list(SURROGATES),
            "models": list(TESTED),
            "oracle": "lab:clip",
        }
    )


def _imagenet_d(images: int | None, out: Path) -> None:
    """Paint images, mine those that four classifiers misread, test four others on them and export the set."""
    from counterfoil.core.progress import watching
    from counterfoil.protocols.reading import write_report
    from counterfoil.report.export import export
    from counterfoil_lab.checker import faithfulness

    echo("Garments are painted in backgrounds, textures and materials. Images that four classifiers all misread are kept, if")
    echo("the lab's CLIP still sees the garment. Is that set hard for four classifiers that took no part?\n")
    with watching("lab:diffusion") as (watch, tell):
        run = protocols.run(imagenet_d_spec(images or PAINTED), out / "imagenet-d", watch=watch, tell=tell)
    echo(protocols.get("imagenet-d").text(run.results or {}))
    echo("\nPainted images that show what their prompt asked for, by the lab's attribute checker, before mining (in per cent)")
    for found in faithfulness(run, run.trials):
        echo(
            f"  {found.kind:<12} object {found.garment.value:5.1f}   {found.kind} {found.nuisance.value:5.1f}"
            f"   both {found.both.value:5.1f} ({found.both.low:.1f} to {found.both.high:.1f}), n {found.both.n}"
        )
    echo("\nNo person has checked the set here: 'counterfoil review' asks people about it.")
    made = out / "imagenet-d-set"
    shutil.rmtree(made, ignore_errors=True)
    told = export(run, made, name="lab set", licence="MIT")
    echo(f"Set: {made.resolve()} ({told.size} images of {len(told.classes)} classes)")
    echo(f"  counterfoil run --protocol imagenet-d --data {made} --model lab:diverse   tests a model on it")
    echo(f"Report: {write_report([run], out / 'imagenet-d-report').resolve()}")


def _print(results: Mapping[str, Mapping[str, Any]], rows: Mapping[str, str]) -> None:
    """Print a table with a column per model."""
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for model in results:
        table.add_column(model, justify="right")
    for title, key in rows.items():
        table.add_row(title, *[_cell(found.get(key)) for found in results.values()])
    Console().print(table)


def _cell(estimate: Mapping[str, Any] | None) -> str:
    """Format a number of the results: `83 (70 to 92)`."""
    if estimate is None or estimate["value"] is None:
        return "–"
    interval = "no interval" if estimate["low"] is None else f"{estimate['low']:.0f} to {estimate['high']:.0f}"
    return f"{estimate['value']:.0f} ({interval})".replace("-", "−")


def _shortcut(model: str, results: Mapping[str, Any]) -> list[str]:
    """Name the factor that costs a model most, and the class-level biases found."""
    from counterfoil.metrics.tables import p_is

    factors, largest = results["factors"], results["largest"]
    sure = [name for name, entry in factors.items() if entry["p_adjusted"] <= 0.01 and (entry["drop"]["value"] or 0) > 0]
    if not sure:
        return [f"{model}: no factor costs it accuracy that chance could not explain."]
    lead = f"; more than the next: {p_is(largest['p'])}" if "p" in largest else ""
    lines = [f"{model}: {largest['factor']} costs most ({p_is(factors[largest['factor']]['p_adjusted'])}{lead})"]
    for entry in results["bias"][:BIASES]:
        moved = f"sensitivity {entry['sensitivity']['value']:.0f}, {p_is(entry['p_adjusted'])}"
        lines.append(f"    {entry['class']}: {entry['name']} ({moved})")
    return lines


@dataclass(frozen=True)
class Demo:
    """A demo: the values of its run's specification, and a function that runs and explains it."""

    values: Callable[[], dict[str, Any]]
    run: Callable[[int | None, Path], None]


fmr = Demo(
    lambda: {"protocol": "fmr", "model": "lab:narrow", "data": "lab:wardrobe", "generator": "lab:vqgan", "oracle": "lab:clip"},
    _fmr,
)
lance = Demo(lambda: dict(LANCE), _lance)
imagenet_d = Demo(lambda: imagenet_d_spec().model_dump(mode="json", exclude={"limit"}), _imagenet_d)
