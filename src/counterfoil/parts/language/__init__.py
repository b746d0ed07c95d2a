"""Captions, rewriters and their checks; models that write or answer in words."""
