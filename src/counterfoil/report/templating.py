"""Templates of pages: all that is put into them is escaped, and what they were not given is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jinja2 import ChoiceLoader, Environment, PackageLoader, StrictUndefined


def templates_of(*packages: str, **helpers: Callable[..., Any]) -> Environment:
    """The templates of packages, where the first that has one of a name decides, with the functions they may call."""
    environment = Environment(
        loader=ChoiceLoader([PackageLoader(package) for package in packages]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals.update(helpers)
    return environment
