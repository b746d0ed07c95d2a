"""Models, generators, oracles and the other parts of a run, found by name."""
