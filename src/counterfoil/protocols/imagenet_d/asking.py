"""The stage that asks vision-language models about the pictures that were kept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from counterfoil.core.lots import lot
from counterfoil.parts import imagenet
from counterfoil.protocols.imagenet_d.bench import Bench
from counterfoil.protocols.imagenet_d.questions import Question, ask
from counterfoil.protocols.imagenet_d.results import answers_table
from counterfoil.protocols.imagenet_d.stages import count
from counterfoil.protocols.workbench import picture
from counterfoil.store.stages import Blobs, Item, Items, Made, Row, Stages, Table

VERSION = 2  # raised when answers are read in another way, so that they are read again


def ask_all(bench: Bench, stages: Stages, final: Table, looks: Mapping[str, Table]) -> dict[str, Table]:
    """What vision-language models answer about the pictures that were kept: the truth or the hardest wrong name."""
    names = list(bench.classes)
    settings = bench.spec.questions
    tables = {}

    def items() -> Iterator[Item]:
        for row in final.kept():
            wrong = _hardest(row, looks, len(names))
            question = Question.drawn(names[row["label"]], names[wrong], row.id, order=settings.order, seed=bench.spec.seed)
            asked = {"truth": question.truth, "wrong": question.wrong, "truth_first": question.truth_first}
            yield Item(row.id, {"image": Blobs.hash_of(row["image"]), **asked}, {"image": row["image"], **asked})

    for named, chat in bench.chats:

        def work(some: Sequence[Item], chat: Any = chat) -> list[Made]:
            asked = [Question(str(i.inputs["truth"]), str(i.inputs["wrong"]), bool(i.inputs["truth_first"])) for i in some]
            pictures = [picture(stages, str(item.about["image"])).to(bench.device) for item in some]
            return [Made(said) for said in ask(chat, pictures, asked, settings, kin=_kin(bench))]

        with bench.placed(chat):
            fixed = bench.settings(named, chat, text=settings.text, both_orders=settings.both_orders, version=VERSION)
            total = count(final)
            tables[named.name] = stages.map(
                answers_table(named.name), Items(items, total=total), work, settings=fixed, parallel=True
            )
    return tables


def _kin(bench: Bench) -> dict[str, tuple[str, ...]]:
    """The other names that a class of the set goes by, for reading answers."""
    known = (
        {entry.wordnet: entry.aliases[2:] for entry in imagenet.classes()} if any(map(_has_ids, bench.classes.values())) else {}
    )
    return {name: tuple(alias for each in ids for alias in known.get(each, ())) for name, ids in bench.classes.items()}


def _has_ids(ids: Sequence[str]) -> bool:
    return any(re.fullmatch(r"n\d{8}", each) for each in ids)


def _hardest(row: Row, looks: Mapping[str, Table], classes: int) -> int:
    """The wrong class that the models together find most probable; without any, one drawn by the picture's id."""
    chance = np.zeros(classes)
    for table in looks.values():
        said = table.one(row.id)
        if said is not None:
            chance[said["wrong"]] += said["wrong_chance"]
    chance[row["label"]] = -1
    if chance.max() > 0:
        return int(chance.argmax())
    drawn = lot(row.id) % (classes - 1)
    return drawn + int(drawn >= row["label"])
