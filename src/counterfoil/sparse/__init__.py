"""The sparse submodel of the FMR paper (§3.2.1, App. I): a search held to the few latent dimensions that matter."""

from counterfoil.sparse.generator import SparseGenerator
from counterfoil.sparse.mask import Mask, load, save
from counterfoil.sparse.windowed import WindowedGenerator, masked

__all__ = ["Mask", "SparseGenerator", "WindowedGenerator", "load", "masked", "save"]
