"""Models made by a function of the user's own."""

from __future__ import annotations

from typing import Any

from torch import nn

from counterfoil.core.errors import BadPart
from counterfoil.parts.contracts import Model
from counterfoil.parts.models.module import ModuleModel
from counterfoil.parts.python_functions import call


def python_model(place: str, **options: Any) -> Model:
    """A model that a function makes: python:package.module:factory or python:path/to/file.py:factory.

    The function is called with the options. It gives a Model, a torch module together with its class names, or a module
    that has them as its attribute `classes`. Modules take pictures of any size in [0, 1], unnormalised; to have pictures
    resized and normalised, give a counterfoil.parts.models.module.ModuleModel.
    """
    made = call(place, options)
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], nn.Module):
        return ModuleModel(made[0], made[1], origin={"source": place})
    if isinstance(made, Model):
        return made
    if isinstance(made, nn.Module):
        classes = getattr(made, "classes", None)
        if classes is None:
            raise BadPart(f"python:{place}: gives a module without class names; give (module, classes), names in output order")
        return ModuleModel(made, classes, origin={"source": place})
    raise BadPart(f"python:{place}: gives a {type(made).__name__}; a Model, a torch module or (module, classes) is needed")
