"""`counterfoil demo --protocol lance`: three classifiers that test alike, told apart by one set of edits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from counterfoil.cli.demo import cell
from counterfoil.cli.output import echo
from counterfoil.core import spec as specs

IMAGES = 40
MODELS = ("lab:background-shortcut", "lab:colour-shortcut", "lab:diverse")
FACTORS = ("object", "background", "adjective", "domain", "weather")
BIASES = 3

SPEC: dict[str, Any] = {
    "protocol": "lance",
    "model": MODELS[0],
    "others": list(MODELS[1:]),
    "data": {"name": "lab:wardrobe", "distribution": "planted"},
    "captioner": "lab:blip",
    "rewriter": "lab:lexicon",
    "editor": {"name": "lab:diffusion", "steps": 8},  # few steps, for speed
    "encoder": "lab:clip",
    "oracle": "lab:clip",
    "edit": {"factors": list(FACTORS), "per_factor": {"adjective": 3}},  # a colour, a material and a texture
    "quality": {"image_image": 0.6, "image_text": 0.1, "directional": 0.4},  # those of the lab, chosen on `split: tune`
    "realism": {"language": "lab:rewriter"},
}
"""The demo's run; the automated test of the planted flaws reads it too."""


def demo(images: int, out: Path) -> None:
    """Edit one set of pictures and ask three classifiers about it."""
    from counterfoil.core.progress import watching
    from counterfoil.metrics.lance import lance_results
    from counterfoil.protocols import lance
    from counterfoil.report import write_report

    echo("Three classifiers that look alike on a fixed test set. Two of them have learned a shortcut: one looks at the")
    echo("background, one at the colour. One set of edited pictures, made without asking any of them, tells which.\n")
    spec = specs.parse({**SPEC, "limit": images})
    with watching("lance") as (watch, tell):
        run = lance.run(spec, out / "lance", watch=watch, tell=tell)
    results = {model: lance_results(run, seed=spec.seed, model=model) for model in MODELS}
    Console().print(_table(results))
    echo("\nAccuracy on the sources, and points of it lost to edits of each factor, with 95 % intervals.\n")
    for model, found in results.items():
        for line in _words(model, found):
            echo(line)
    counts = results[MODELS[0]]["counts"]
    echo(f"\n{counts['accepted']} edits of {counts['readable']} pictures accepted.")
    echo(f"Report: {write_report([run], out / 'lance-report').resolve()}")


def _table(results: dict[str, dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for model in results:
        table.add_column(model, justify="right")
    table.add_row("sources, %", *[cell(found["accuracy_source"]) for found in results.values()])
    for factor in FACTORS:
        entries = [found["factors"].get(factor) for found in results.values()]
        table.add_row(factor, *["–" if entry is None else cell(entry["drop"]) for entry in entries])
    table.add_row("reconstruction", *[cell(found["drop_reconstruction"]) for found in results.values()])
    return table


def _words(model: str, results: dict[str, Any]) -> list[str]:
    from counterfoil.metrics.p_values import p_is

    factors, largest = results["factors"], results["largest"]
    sure = [name for name, entry in factors.items() if entry["p_adjusted"] <= 0.01 and (entry["drop"]["value"] or 0) > 0]
    if not sure:
        return [f"{model}: no factor costs it accuracy that chance could not explain."]
    first = factors[largest["factor"]]
    lead = f"; more than the next: {p_is(largest['p'])}" if "p" in largest else ""
    lines = [f"{model}: {largest['factor']} costs most ({p_is(first['p_adjusted'])}{lead})"]
    for entry in results["bias"][:BIASES]:
        lines.append(
            f"    {entry['class']}: {entry['name']} (sensitivity {entry['sensitivity']:.0f}, {p_is(entry['p_adjusted'])})"
        )
    return lines
