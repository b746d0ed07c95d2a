"""Prompt grids: objects × nuisances, written as a small YAML file and planned without painting anything.

objects: imagenet-d-objects            a list by name, a file, or a mapping of names to ids
nuisances:
  background:                          a kind of nuisance: any name will do
    words: scenes                      a list by name, a file, a list, or a mapping of names to phrases
    templates: ["a photo of {a} {object} {nuisance}"]
fillers: {colour: [red, blue]}         further slots of templates, drawn for each prompt
sampling: balanced                     or full, or random
count: 10000                           prompts at most
images: 1                              pictures of each prompt, with seeds of their own
exclude: [{object: wok, background: under water}]
"""

from __future__ import annotations

from counterfoil.protocols.imagenet_d.grids.grid import Grid, Prompt, read_grid
from counterfoil.protocols.imagenet_d.grids.objects import Thing

__all__ = ["Grid", "Prompt", "Thing", "read_grid"]
