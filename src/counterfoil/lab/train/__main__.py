"""`python -m counterfoil.lab.train NAME`: train one of the lab's models."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from counterfoil.errors import CounterfoilError
from counterfoil.lab.garments import DEBIAN_FOLDER
from counterfoil.lab.train import attributes, autoencoder, blip, classifiers, clip, ddpm, diffusion, rewriter, vqgan
from counterfoil.lab.train.run import Run, prepare_torch

WEIGHTS = Path(__file__).resolve().parents[1] / "weights"

RECIPES: dict[str, Callable[[Run], None]] = {
    "attributes": partial(attributes.train, recipe=attributes.Attributes()),
    "vqgan": partial(vqgan.train, recipe=vqgan.Vqgan()),
    "autoencoder": partial(autoencoder.train, recipe=autoencoder.Autoencoder()),
    "diffusion": partial(diffusion.train, recipe=diffusion.Diffusion()),
    "ddpm": partial(ddpm.train, recipe=ddpm.Ddpm()),
    "clip": partial(clip.train, recipe=clip.Clip()),
    "blip": partial(blip.train, recipe=blip.Blip()),
    "rewriter": partial(rewriter.train, recipe=rewriter.Rewriter()),
    **{name: partial(classifiers.train, recipe=recipe) for name, recipe in classifiers.RECIPES.items()},
}
FOLDERS = {"autoencoder": "diffusion/vae"}
"""Where a model goes whose folder is not its name."""


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and train."""
    parser = argparse.ArgumentParser(prog="python -m counterfoil.lab.train", description="Train one of the lab's models.")
    parser.add_argument("name", choices=RECIPES, metavar="NAME", help=", ".join(RECIPES))
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--steps", type=int, help="steps to take; the recipe's own number by default")
    parser.add_argument("--minutes", type=float, help="train for so long instead; the schedule is fitted to the time")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--data", type=Path, default=Path(DEBIAN_FOLDER), help="folder with Fashion-MNIST's idx files")
    parser.add_argument("--weights", type=Path, default=WEIGHTS, help="folder of the lab's models")
    parser.add_argument("--out", type=Path, help="folder to write to; the model's own below --weights by default")
    parser.add_argument("--compile", action="store_true", help="compile the networks first; pays on a GPU")
    parser.add_argument("--resume", action="store_true", help="go on from the weights that are there")
    given = parser.parse_args(arguments)
    prepare_torch(given.seed)
    run = Run(
        out=given.out or given.weights / FOLDERS.get(given.name, given.name),
        data=given.data,
        weights=given.weights,
        device=given.device,
        steps=given.steps,
        minutes=given.minutes,
        batch=given.batch,
        seed=given.seed,
        compiles=given.compile,
        resumes=given.resume,
    )
    try:
        RECIPES[given.name](run if given.minutes is None else replace(run, steps=None))
    except CounterfoilError as error:
        sys.exit(f"counterfoil: {error}")


if __name__ == "__main__":
    main()
