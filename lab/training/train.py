"""Train one of the lab's models: `python -m lab.training.train NAME`.

A recipe is a frozen dataclass with the model's sizes, losses, pool of scenes and schedule. Models go to `again/NAME`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lab.training import attributes, autoencoder, blip, classifiers, clip, ddpm, diffusion, rewriter, vqgan
from lab.training.loop import Recipe, Run, prepare_torch, read, reschedule

from counterfoil.core.errors import BadWeights, UsageError
from counterfoil_lab.parts import WEIGHTS

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
"""Folders of models whose folder is not their name."""


def main(arguments: list[str] | None = None) -> None:
    """Read the command line and train."""
    given = _parser().parse_args(arguments)
    train, recipe = RECIPES[given.name]
    run = _run(given)
    prepare_torch(run.seed)
    train(run, reschedule(recipe, steps=given.steps, batch=given.batch))


def _run(given: argparse.Namespace) -> Run:
    out = given.out or Path("again") / FOLDERS.get(given.name, given.name)
    if out.resolve().is_relative_to(WEIGHTS.resolve()):
        raise UsageError(f"{out}: holds a model that ships; train into another folder, measure, then copy")
    stages = read(out).get("stages", []) if given.resume else []
    if given.resume and not (stages and any(out.rglob("*.safetensors"))):
        raise BadWeights(f"{out}: no trained model to resume; leave out --resume, or give its folder as --out")
    out.mkdir(parents=True, exist_ok=True)
    folders = (given.weights, None if given.alone else WEIGHTS)
    return Run(
        name=given.name,
        out=out,
        weights=tuple(folder for folder in folders if folder is not None),
        data=given.data,
        device=given.device,
        minutes=given.minutes,
        seed=given.seed + len(stages),  # every stage draws other scenes
        compiles=given.compile,
        resumes=given.resume,
        note=given.note,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lab.training.train", description="Train one of the lab's models.")
    parser.add_argument("name", choices=RECIPES, metavar="NAME", help=", ".join(RECIPES))
    parser.add_argument("--device", default="cpu", help="device to train on; cpu by default")
    length = parser.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, help="steps to take; the recipe's own number by default")
    length.add_argument("--minutes", type=float, help="train for this long instead; the schedule is fitted to the time")
    parser.add_argument("--batch", type=int, help="samples per step; the recipe's own number by default")
    parser.add_argument("--seed", type=int, default=0, help="seed of weights, scenes and captions; 0 by default")
    parser.add_argument("--data", type=Path, help="folder with Fashion-MNIST's idx files")
    parser.add_argument("--weights", type=Path, help="folder of models to build on, before those that ship")
    parser.add_argument("--alone", action="store_true", help="build on none of the models that ship")
    parser.add_argument("--out", type=Path, help="folder to write the model to; again/NAME by default")
    parser.add_argument("--compile", action="store_true", help="compile the networks first; pays on a GPU")
    parser.add_argument(
        "--resume", action="store_true", help="resume from the weights in --out, at half the rate, with other scenes"
    )
    parser.add_argument("--note", default="", help="a sentence for the model's card")
    return parser


if __name__ == "__main__":
    main()
