"""Studies: experiments on the instrument itself, one file each, run by `counterfoil study NAME`.

A study's module has `STUDY`, a `Study`; it is imported when it is asked for, so that listing the names loads nothing. By
default a study runs on the lab, where the answer is known; with other parts it runs on those.
"""

from __future__ import annotations

import difflib
from importlib import import_module

from counterfoil.core.errors import UnknownName
from counterfoil.studies.contract import Study

NAMES = {
    "variants": "one architecture trained in several ways: whether FMR tells the trainings apart",
    "transfer": "pictures made against one model, scored on the others",
    "generators": "the same models under several generators: whether their order holds",
    "oracles": "another oracle on the same pictures: agreement, and classes that look easy because they are rejected more",
    "step-size": "step and budget against the share of pictures that survive a step, and FMR",
    "fgsm-start": "a search that starts from adversarial pictures instead of clean ones",
    "adversarial-training": "a model trained on adversarial pictures against a plain one, both ways",
    "greyscale": "a model that sees no colour against one that does, both ways",
    "augmentation": "fine-tune a model on pictures made against it, then test it on old and on newly made ones",
    "sparse": "the search held to the few latent dimensions that matter: what it keeps and what it saves",
    "oracle-attack": "how far the oracle itself can be pushed towards a wrong class",
    "surrogates": "how many models have to miss a picture before others miss it too",
}
"""Every study and what it shows, in the order in which `counterfoil study all` runs them."""


def load(name: str) -> Study:
    """The study of that name."""
    if name not in NAMES:
        near = difflib.get_close_matches(name, NAMES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(NAMES)}"
        raise UnknownName(f"no study named {name!r}; {hint}")
    study: Study = import_module(f"counterfoil.studies.{name.replace('-', '_')}").STUDY
    return study
