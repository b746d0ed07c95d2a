"""Editors: images redrawn to fit an edited caption."""
