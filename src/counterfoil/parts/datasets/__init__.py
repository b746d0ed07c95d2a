"""Labelled images: folders, tables, shards, arrays and published sets, and subsets of any of them."""
