"""A few images through the engine, for tests of it."""

from __future__ import annotations

import random

from counterfoil.core.spec import EngineSpec
from counterfoil.engine.scheduler import Engine, Job, SearchResult
from counterfoil.testing import pictures
from tests.fakes import TinyModel

COLUMNS = [2, 0, 3, 1]  # the data's classes stand in another order in the model
IMAGES = 11


def jobs(count: int = IMAGES) -> list[Job]:
    return [Job(f"image-{at}", image, at % 4, seed=1000 + at) for at, image in enumerate(pictures(count, 16))]


def engine(generator, oracle, search, *, slots=7, batch_size=8, model=None, **settings) -> Engine:
    layout = EngineSpec(slots=slots, batch_size=batch_size)
    return Engine(model or TinyModel(), generator, oracle, columns=COLUMNS, search=search, layout=layout, **settings)


def climb(generator, oracle, search, *, order=None, pipelined=False, **settings) -> dict[str, SearchResult]:
    made = engine(generator, oracle, search, **settings)
    made.pipelined = pipelined
    work = jobs()
    if order is not None:
        random.Random(order).shuffle(work)
    return {done.job.image_id: done for done in made.run(work)}
