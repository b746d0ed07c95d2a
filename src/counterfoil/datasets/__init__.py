"""Labelled pictures: folders on disk and arrays, and subsets of either."""
