"""`counterfoil demo --protocol imagenet-d`: from prompts to an exported set on the embedded lab."""

from __future__ import annotations

import shutil
from pathlib import Path

from counterfoil.cli.output import echo
from counterfoil.core import spec as specs

SURROGATES = ("lab:narrow", "lab:vit", "lab:grey", "lab:colour-shortcut")
MODELS = ("lab:augmented", "lab:adversarial", "lab:background-shortcut", "lab:diverse")
CONTROL = "lab:diverse"
"""Has seen the whole world in training: what it recognises in the mined set is there to be recognised."""
IMAGES = 216


def demo_spec(images: int = IMAGES) -> specs.ImagenetDSpec:
    """The run of the demo: the lab's grid, by default each pair once, mined by four classifiers and tested on four others."""
    from counterfoil.protocols.imagenet_d.grids.words import named, read_yaml

    path = named("lab")
    assert path is not None
    found: specs.ImagenetDSpec = specs.parse(
        {
            "protocol": "imagenet-d",
            "grid": {**read_yaml(path, what="grid"), "images": max(1, -(-images // 216))},
            "limit": images,
            "painter": "lab:diffusion",
            "surrogates": list(SURROGATES),
            "models": list(MODELS),
            "oracle": "lab:clip",
        }
    )
    return found


def demo(images: int, out: Path) -> None:
    """Paint, mine, test and export, then say what it shows."""
    from counterfoil.core.progress import watching
    from counterfoil.lab.faithfulness import faithfulness
    from counterfoil.metrics.imagenet_d import table_text
    from counterfoil.protocols import imagenet_d
    from counterfoil.report import write_report
    from counterfoil.report.export import export

    echo("Garments are painted in backgrounds, textures and materials. What four classifiers all miss is kept, if the lab's")
    echo("CLIP still sees the garment. Is that set hard for four classifiers that took no part?\n")
    with watching("lab:diffusion") as (watch, tell):
        run = imagenet_d.run(demo_spec(images), out / "imagenet-d", watch=watch, tell=tell)
    echo(table_text(run.results or {}))
    echo("\nWhat the painter paints, by the lab's attribute checker, before mining (in per cent)")
    for found in faithfulness(run, run.trials):
        echo(
            f"  {found.kind:<12} object {found.garment.value:5.1f}   {found.kind} {found.nuisance.value:5.1f}"
            f"   both {found.both.value:5.1f} ({found.both.low:.1f} to {found.both.high:.1f}), n {found.both.n}"
        )
    echo("\nNo person has looked at the set here: 'counterfoil review' asks people about it.")
    made = out / "imagenet-d-set"
    shutil.rmtree(made, ignore_errors=True)
    told = export(run, made, name="lab set", licence="MIT")
    echo(f"Set: {made.resolve()} ({told.size} pictures of {len(told.classes)} classes)")
    echo(f"  counterfoil run --protocol imagenet-d --data {made} --model lab:diverse   tests a model on it")
    echo(f"Report: {write_report([run], out / 'imagenet-d-report').resolve()}")
