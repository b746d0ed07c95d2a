"""The search engine: Algorithm 1 of the FMR paper on many images at once."""

from __future__ import annotations
