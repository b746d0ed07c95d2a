"""For every source that `counterfoil list` shows, a small one of its real class: how to make it, and how to check it."""

from tests.sources.checks import CHECKS, check
from tests.sources.recipes import RECIPES, VARIANTS, list_sources

__all__ = ["CHECKS", "RECIPES", "VARIANTS", "check", "list_sources"]
