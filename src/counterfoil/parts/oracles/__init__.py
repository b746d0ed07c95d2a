"""Oracles: they say whether a picture still shows its class."""
