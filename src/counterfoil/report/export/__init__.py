"""Writes the pictures of a run as a set that others can use, with its licence, its history and its checksums. No torch here."""
