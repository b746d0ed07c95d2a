"""Which latent dimensions a sparse search moves: the fit behind the masks of FMR."""
