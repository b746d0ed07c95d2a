"""Oracles: they say whether an image still shows its class."""
