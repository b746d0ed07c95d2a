"""Painters: images from words."""
