"""Editors: pictures redrawn to fit an edited caption, by way of an inversion that is found once an image."""
