"""Which of a grid's places are painted.

`balanced` goes round the objects and, within each kind of nuisance, round the words, so that after any number of prompts
every object has been named as often as any other, to within one, and nearly so every word; kinds take turns. `random` draws
without replacement. Neither ever lists the whole grid.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from counterfoil.protocols.imagenet_d.grids.grid import Grid, Nuisance


@dataclass(frozen=True, slots=True)
class Place:
    """One picture of the grid."""

    kind: int  # number of the nuisance
    thing: int
    word: str
    number: int


def places(grid: Grid, seed: int) -> Iterator[Place]:
    """The places to paint, in the order in which they are painted."""
    if grid.sampling == "full":
        return _full(grid)
    if grid.sampling == "random":
        return _random(grid, seed)
    return islice(_balanced(grid, seed), len(grid))


def allowed_pairs(grid: Grid, nuisance: Nuisance) -> int:
    """How many pairs of object and word are not excluded."""
    if not any(kind == nuisance.kind for _, kind, _ in grid.excluded):
        return len(grid.things) * len(nuisance.words)
    return sum(grid.allows(thing.name, nuisance.kind, word) for thing in grid.things for word in nuisance.words)


def _full(grid: Grid) -> Iterator[Place]:
    for kind, nuisance in enumerate(grid.nuisances):
        for thing, each in enumerate(grid.things):
            for word in nuisance.words:
                if grid.allows(each.name, nuisance.kind, word):
                    yield from (Place(kind, thing, word, number) for number in range(grid.images))


def _random(grid: Grid, seed: int) -> Iterator[Place]:
    """Numbers drawn out of the whole grid and turned into places; excluded ones are passed over."""
    sizes = [len(grid.things) * len(nuisance.words) * grid.images for nuisance in grid.nuisances]
    words = [list(nuisance.words) for nuisance in grid.nuisances]
    total, wanted, given = sum(sizes), len(grid), 0
    for at in _shuffled(total, random.Random(f"grid {seed}")):
        kind = 0
        while at >= sizes[kind]:
            at -= sizes[kind]
            kind += 1
        pair, number = divmod(at, grid.images)
        thing, word = divmod(pair, len(words[kind]))
        if grid.allows(grid.things[thing].name, grid.nuisances[kind].kind, words[kind][word]):
            yield Place(kind, thing, words[kind][word], number)
            given += 1
            if given == wanted:
                return


def _shuffled(total: int, drawn: random.Random) -> Iterator[int]:
    """The numbers below `total` in random order, holding only those that were swapped."""
    moved: dict[int, int] = {}
    for at in range(total):
        other = drawn.randrange(at, total)
        yield moved.get(other, other)
        moved[other] = moved.pop(at, at)


def _balanced(grid: Grid, seed: int) -> Iterator[Place]:
    """Kinds take turns; a kind that has run out leaves its turns to the others."""
    turns = [_rounds(grid, kind, seed) for kind in range(len(grid.nuisances))]
    while turns:
        left = []
        for turn in turns:
            place = next(turn, None)
            if place is not None:
                yield place
                left.append(turn)
        turns = left


def _rounds(grid: Grid, kind: int, seed: int) -> Iterator[Place]:
    """All places of one kind: in each round every object once, with the words that come next.

    Word number i + r·objects + ⌊r·gcd / words⌋ for object i in round r: each pair once in as many rounds as there are words.
    """
    nuisance = grid.nuisances[kind]
    things = _order(range(len(grid.things)), f"things {seed} {kind}")
    words = _order(list(nuisance.words), f"words {seed} {kind}")
    common = math.gcd(len(things), len(words))
    for number in range(grid.images):
        for turn in range(len(words)):
            shift = turn * len(things) + turn * common // len(words)
            for at, thing in enumerate(things):
                word = words[(at + shift) % len(words)]
                if grid.allows(grid.things[thing].name, nuisance.kind, word):
                    yield Place(kind, thing, word, number)


Item = TypeVar("Item")


def _order(items: Sequence[Item], seed: str) -> list[Item]:
    order = list(items)
    random.Random(seed).shuffle(order)
    return order
