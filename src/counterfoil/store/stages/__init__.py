"""Resumable staged maps: the frame of protocols that go from words to pictures in steps.

    stages/captions.jsonl    one line a result, in the order of the items; people may correct it between stages
    stages/captions.parts/   results of a stage that is under way; merged into the file above when it is done
    stages/blobs/3f/3f….bin  tensors that lines refer to, named by their content; images are with the run's others

A line's `key` is a hash of the stage's settings and of the item's inputs. A line whose key is still asked for is kept as it
stands, corrected or not; what is made of it has another input then, and is redone. Nothing here imports torch.
"""

from __future__ import annotations

from counterfoil.store.stages.blobs import Blobs, image_of
from counterfoil.store.stages.items import Item, Items, Made, Row, turned_away
from counterfoil.store.stages.mapping import Progress, Spread, StageReached, Stages
from counterfoil.store.stages.table import Follows, Table, open_table

__all__ = [
    "Blobs",
    "Follows",
    "Item",
    "Items",
    "Made",
    "Progress",
    "Row",
    "Spread",
    "StageReached",
    "Stages",
    "Table",
    "image_of",
    "open_table",
    "turned_away",
]
