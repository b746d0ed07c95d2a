"""Classifiers under test: torch modules, and where they come from."""
