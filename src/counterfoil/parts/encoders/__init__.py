"""Models that embed images and words into one space: oracles and zero-shot classifiers are made of them."""
