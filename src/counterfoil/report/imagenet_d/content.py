"""Reads an ImageNet-D run into what its page shows."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from counterfoil.core.records import Trial
from counterfoil.metrics.imagenet_d import chats_of, in_order, results
from counterfoil.report.cautions import Caution, about_parts, about_pictures
from counterfoil.report.collect import answer_name
from counterfoil.report.making import text
from counterfoil.report.numbers import count
from counterfoil.report.pictures import Album, Stored
from counterfoil.store import Run
from counterfoil.store.later import HUMAN

UNREAD = "neither choice"


@dataclass(frozen=True)
class Shown:
    """A picture of the set, and what was said of it."""

    trial: Trial
    class_name: str
    picture: Stored | None
    said: Sequence[tuple[str, str, bool]]  # model, the class it named, whether that is right
    people: str  # yes, no, or empty


@dataclass(frozen=True)
class Content:
    """One run as its page shows it."""

    run: Run
    number: int
    label: str
    results: Mapping[str, Any] | None
    models: Sequence[tuple[str, Any]] = ()  # in the order of the tables
    gallery: Sequence[Shown] = ()
    missing: int = 0

    @property
    def mined(self) -> bool:
        """Whether the set was chosen by surrogates."""
        return bool(self.results and "leave_one_out" in self.results)

    @property
    def given(self) -> bool:
        """Whether the set was there before, and is only tested on."""
        return bool(self.run.spec.get("data"))

    @property
    def pulled(self) -> bool:
        """Whether a nuisance is found to pull a model."""
        return any((entry.get("failure_modes") or {}).get("pulls") for _, entry in self.models)

    @property
    def mistaken(self) -> bool:
        """Whether any model made a mistake, on the set or on what was painted."""
        sorted_ = ((entry.get("failure_modes") or {}).get("painted") or {} for _, entry in self.models)
        return any(entry.get("confusions") for _, entry in self.models) or any(each.get("mistakes") for each in sorted_)

    @property
    def kinds(self) -> list[str]:
        """The kinds of nuisance that the numbers tell apart."""
        return list(dict.fromkeys(kind for _, entry in self.models for kind in entry["by_nuisance"]))

    @property
    def unread_is_wrong(self) -> bool:
        """What becomes of an answer to a two-choice question that means neither choice."""
        return bool((self.run.spec.get("questions") or {}).get("unread", "wrong") == "wrong")

    @property
    def cautions(self) -> list[Caution]:
        """What to know before reading the numbers."""
        pictures = int((self.results or {})["counts"]["validated"])
        said = f"{count(pictures, 'picture is', 'pictures are')} in the set"
        return [*about_parts(self.run), *about_pictures(pictures, said, missing=self.missing)]

    def facts(self) -> list[tuple[str, str]]:
        """How the pictures came about, for people."""
        spec = self.run.spec
        found = [(role, _named(spec.get(role))) for role in ("painter", "data", "oracle") if spec.get(role)]
        found += [(role, ", ".join(map(_named, spec.get(role) or ())) or "none") for role in ("surrogates", "models", "chats")]
        grid = spec.get("grid")
        found.append(("grid", grid if isinstance(grid, str) else f"given in full, {len(self.run.classes)} objects"))
        for section in ("mining", "questions"):
            found += [(f"{section}: {key}", text(value)) for key, value in (spec.get(section) or {}).items()]
        found += [("preset", str(spec.get("preset", ""))), ("seed", str(spec.get("seed", 0)))]
        found += [(f"{name} version", str(value)) for name, value in (self.run.provenance.get("versions") or {}).items()]
        return found


def collect(run: Run, album: Album, *, number: int, label: str, pictures: int) -> Content:
    """Read a run; pictures of its set go into the album. Numbers are worked out anew, as people may have looked since."""
    if run.results is None:
        return Content(run, number, label, None)
    found = results(run, int(run.spec.get("seed", 0)))
    chats = chats_of(run)
    people: dict[str, bool] = {}
    for verdict in run.verdicts():
        if verdict.oracle.partition(":")[0] == HUMAN and verdict.keeps_label is not None:
            people[verdict.trial_id] = verdict.keeps_label
    kept = {trial.trial_id: trial for trial in run.trials if trial.ending == "made" and trial.image}
    chosen = set(heapq.nsmallest(pictures, kept, key=lambda name: hashlib.sha256(name.encode()).digest()))
    said: dict[str, dict[str, tuple[str, bool]]] = {name: {} for name in chosen}
    for each in run.predictions():
        if each.trial_id in chosen:
            named = UNREAD if each.predicted < 0 and each.model in chats else answer_name(run, each.predicted, each.said)
            said[each.trial_id][each.model] = (named, each.correct)
    order = [name for name, entry in in_order(found["models"])]
    gallery = [
        Shown(
            trial=kept[name],
            class_name=run.classes[kept[name].label],
            picture=album.keep(run.path, kept[name].image),
            said=[(model, *said[name][model]) for model in order if model in said[name]],
            people={True: "yes", False: "no"}.get(people.get(name), ""),  # type: ignore[arg-type]
        )
        for name in sorted(chosen, key=lambda each: (kept[each].factor, kept[each].label, each))
    ]
    missing = len(album.missing.get(run.path, ()))
    return Content(run, number, label, found, in_order(found["models"]), gallery, missing)


def _named(part: Any) -> str:
    if not isinstance(part, Mapping):
        return str(part)
    options = ", ".join(f"{key} {value}" for key, value in (part.get("options") or {}).items())
    return f"{part.get('name')}{f' ({options})' if options else ''}"
