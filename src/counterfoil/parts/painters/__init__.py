"""Painters: pictures from words."""
