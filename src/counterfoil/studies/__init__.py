"""Studies: experiments on the instrument itself, run by `counterfoil study NAME`. A study's module is imported when it is run."""

from __future__ import annotations

import difflib
from importlib import import_module
from typing import TYPE_CHECKING

from counterfoil.core.errors import UnknownName

if TYPE_CHECKING:
    from counterfoil.studies.base import Study

NAMES = {
    "variants": "one architecture trained in several ways: does FMR tell the trainings apart?",
    "transfer": "images made against one model, scored on the others",
    "generators": "the same models under several generators: does their order hold?",
    "oracles": "another oracle on the same images: agreement, and classes that look easy because they are rejected more",
    "readings": "what a step may mean: its norm, its unit, the space it acts in, and 0.001 against 0.1",
    "controls": "random arms that go as far, or take as many steps, as the guided climb: what each costs",
    "step-size": "step and budget against the share of images that survive a step, and FMR",
    "fgsm-start": "a search that starts from adversarial images instead of clean ones",
    "adversarial-training": "a model trained on adversarial images against a plain one, both directions",
    "greyscale": "a model that sees no colour against one that does, both directions",
    "augmentation": "fine-tune a model on images made against it, then test it on old and on newly made ones",
    "sparse": "the search held to the few latent dimensions that matter: what it keeps and what it saves",
    "oracle-attack": "how far the oracle itself can be pushed towards a wrong class",
    "surrogates": "how many models must misread an image before others misread it too",
}
"""Every study and what it shows, in the order in which `counterfoil study all` runs them."""

_PLACES = {
    **dict.fromkeys(("variants", "generators", "adversarial-training", "greyscale", "surrogates", "transfer"), "models"),
    **dict.fromkeys(("readings", "controls", "step-size", "fgsm-start"), "search"),
    "oracle-attack": "oracles",
}
"""Modules of studies that share one; any other study has a module of its own name."""


def load(name: str) -> Study:
    """Return the study of that name."""
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(NAMES)}"
        raise UnknownName(f"no study named {name!r}; {hint}")
    module = import_module(f"counterfoil.studies.{_PLACES.get(name, name)}")
    studies: tuple[Study, ...] = module.STUDIES
    return next(each for each in studies if each.name == name)
