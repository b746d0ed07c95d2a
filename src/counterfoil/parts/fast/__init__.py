"""Makes generators, models and oracles fast on a GPU without changing what they compute, save for rounding."""
