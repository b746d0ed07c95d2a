"""`python -m counterfoil.lab.train NAME`: train one of the lab's models."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from counterfoil.core.errors import BadWeights, UsageError
from counterfoil.lab.commands import a_seed, above_zero, at_least_one, errors_in_a_line, usable_device, writable
from counterfoil.lab.places import WEIGHTS
from counterfoil.lab.train import attributes, autoencoder, blip, classifiers, clip, ddpm, diffusion, record, rewriter, vqgan
from counterfoil.lab.train.recipe import Recipe, rescheduled
from counterfoil.lab.train.run import Run, prepare_torch

RECIPES: dict[str, tuple[Callable[[Run, Any], None], Recipe]] = {
    "attributes": (attributes.train, attributes.Attributes()),
    "vqgan": (vqgan.train, vqgan.Vqgan()),
    "autoencoder": (autoencoder.train, autoencoder.Autoencoder()),
    "diffusion": (diffusion.train, diffusion.Diffusion()),
    "ddpm": (ddpm.train, ddpm.Ddpm()),
    "clip": (clip.train, clip.Clip()),
    "blip": (blip.train, blip.Blip()),
    "rewriter": (rewriter.train, rewriter.Rewriter()),
    **{name: (classifiers.train, recipe) for name, recipe in classifiers.RECIPES.items()},
}
FOLDERS = {"autoencoder": diffusion.AUTOENCODER}
"""Where a model goes whose folder is not its name."""


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and train."""
    given = _parser().parse_args(arguments)
    with errors_in_a_line():
        train, recipe = RECIPES[given.name]
        run = _run(given)
        prepare_torch(run.seed)
        train(run, rescheduled(recipe, steps=given.steps, batch=given.batch))


def _run(given: argparse.Namespace) -> Run:
    """The run that the command line asks for."""
    out = given.out or Path("again") / FOLDERS.get(given.name, given.name)
    if out.resolve().is_relative_to(WEIGHTS.resolve()):
        raise UsageError(f"{out}: holds a model that ships; train into another folder, measure, then copy")
    if given.weights is not None and not given.weights.is_dir():
        raise BadWeights(f"{given.weights}: no such folder; --weights is a folder of models, one folder each")
    stages = record.read(out).get("stages", []) if given.resume else []
    if given.resume and not (stages and any(out.rglob("*.safetensors"))):
        raise BadWeights(f"{out}: no trained model to go on from; leave out --resume, or give its folder as --out")
    folders = (given.weights, None if given.alone else WEIGHTS)
    return Run(
        name=given.name,
        out=writable(out),
        weights=tuple(folder for folder in folders if folder is not None),
        data=given.data,
        device=usable_device(given.device),
        minutes=given.minutes,
        # Going on, every stage draws other scenes.
        seed=given.seed + len(stages),
        compiles=given.compile,
        resumes=given.resume,
        note=given.note,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m counterfoil.lab.train", description="Train one of the lab's models.")
    parser.add_argument("name", choices=RECIPES, metavar="NAME", help=", ".join(RECIPES))
    parser.add_argument("--device", default="cpu", help="where to train, such as cuda; cpu by default")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=at_least_one, help="steps to take; the recipe's own number by default")
    length.add_argument("--minutes", type=above_zero, help="train for so long instead; the schedule is fitted to the time")
    parser.add_argument("--batch", type=at_least_one, help="samples a step; the recipe's own number by default")
    parser.add_argument("--seed", type=a_seed, default=0, help="of weights, scenes and captions; 0 by default")
    parser.add_argument("--data", type=Path, help="folder with Fashion-MNIST's idx files")
    parser.add_argument("--weights", type=Path, help="folder of models to build on, before those of the package")
    parser.add_argument("--alone", action="store_true", help="build on none of the package's models")
    parser.add_argument("--out", type=Path, help="folder to write the model to; again/NAME by default")
    parser.add_argument("--compile", action="store_true", help="compile the networks first; pays on a GPU")
    parser.add_argument(
        "--resume", action="store_true", help="go on from the weights in --out, at half the rate, with other scenes"
    )
    parser.add_argument("--note", default="", help="what the model's card should say besides")
    return parser


if __name__ == "__main__":
    main()
