"""Style transfer as a generator: the look of a picture moves, what it shows stays."""
