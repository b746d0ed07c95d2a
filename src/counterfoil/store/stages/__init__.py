"""Resumable staged maps: the frame of protocols that go from words to pictures in steps.

    stages/captions.jsonl    one line a result, in the order of the items; people may correct it between stages
    stages/captions.parts/   results of a stage that is under way; merged into the file above when it is done
    stages/blobs/3f/3f….bin  tensors that lines refer to, named by their content; images are with the run's others

A line's `key` is a hash of the stage's settings and of the item's inputs. A line whose key is still asked for is kept as it
stands, corrected or not; what is made of it has another input then, and is redone. Nothing here imports torch.
"""

from __future__ import annotations

from counterfoil.store.stages.blobs import Blobs, image_of
from counterfoil.store.stages.items import Item, Items, Made, Row, key_of, line_of, turned_away
from counterfoil.store.stages.table import FOLDER, Follows, Table, digest, open_table, sweep

__all__ = [
    "FOLDER",
    "Blobs",
    "Follows",
    "Item",
    "Items",
    "Made",
    "Row",
    "Table",
    "digest",
    "image_of",
    "key_of",
    "line_of",
    "open_table",
    "sweep",
    "turned_away",
]
