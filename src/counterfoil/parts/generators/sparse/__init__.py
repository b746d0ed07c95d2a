"""The sparse submodel of the FMR paper (§3.2.1, App. I): a search held to the few latent dimensions that matter."""

from counterfoil.parts.generators.sparse.generator import SparseGenerator
from counterfoil.parts.generators.sparse.mask import Mask, load, save
from counterfoil.parts.generators.sparse.windowed import WindowedGenerator, masked

__all__ = ["Mask", "SparseGenerator", "WindowedGenerator", "load", "masked", "save"]
