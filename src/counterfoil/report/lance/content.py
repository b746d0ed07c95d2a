"""Reads a LANCE run into what its page shows: numbers, other models on the same edits, and pairs of pictures."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from counterfoil.core.records import Prediction, Trial, Verdict
from counterfoil.metrics.answers import models_of
from counterfoil.metrics.bias import parted
from counterfoil.metrics.lance import lance_results
from counterfoil.report.cautions import GENERATOR_COST, Caution, about_parts, about_pictures
from counterfoil.report.collect import answer_name, part_name
from counterfoil.report.lance.charts import STAGES
from counterfoil.report.numbers import count, number
from counterfoil.report.pictures import Album, Stored
from counterfoil.store import Run

BIASES = 12  # groups whose pairs are shown; the table has all that were found
EXAMPLES = 4  # pairs of a group
LEVEL = 0.01


@dataclass(frozen=True)
class Pair:
    """A source picture beside an edit of it, and what was said of the two."""

    trial: Trial
    class_name: str
    clean: Stored | None
    made: Stored | None
    before: Prediction | None
    after: Prediction | None
    verdict: Verdict | None
    seen_after: str

    @property
    def words(self) -> tuple[str, str, str, str]:
        """What caption and edit begin with, the words taken out and put in, and what both end with."""
        return parted(self.trial.caption, self.trial.prompt)

    @property
    def moved(self) -> float | None:
        """Points by which the probability of the true class fell."""
        return None if self.before is None or self.after is None else 100 * (self.before.truth - self.after.truth)

    @property
    def outcome(self) -> str:
        """What the edit did to the model's answer."""
        if self.before is None or self.after is None:
            return "not asked"
        if self.before.correct:
            return "kept" if self.after.correct else "fooled"
        return "right after" if self.after.correct else "wrong before"


@dataclass(frozen=True)
class Bias:
    """A group of edits of one class, with some of its pairs."""

    entry: Mapping[str, Any]
    pairs: Sequence[Pair]

    @property
    def sure(self) -> bool:
        """Whether chance is ruled out at the page's level, all groups considered."""
        return bool(self.entry["p_adjusted"] <= LEVEL)


@dataclass(frozen=True)
class Content:
    """One model on a run's edits, as its page shows it."""

    run: Run
    number: int
    label: str
    model: str
    results: Mapping[str, Any] | None
    biases: Sequence[Bias] = ()
    gallery: Sequence[Pair] = ()
    skipped: Sequence[Trial] = ()
    missing: int = 0
    edits: int = 0
    stages: Sequence[str] = field(default_factory=tuple)

    @property
    def oracle(self) -> str:
        return part_name(self.run, "oracle")

    @property
    def cautions(self) -> list[Caution]:
        """What to know before reading the numbers; edits of one source picture say less than those of several."""
        if self.results is None:
            return []
        pictures = int(self.results["counts"]["validated"])
        said = f"{count(pictures, 'source picture has', 'source pictures have')} an accepted edit"
        found = [*about_parts(self.run, models=[self.model]), *about_pictures(pictures, said, missing=self.missing)]
        redrawn = number(self.results, "drop_reconstruction")
        if redrawn.value is not None and redrawn.value > GENERATOR_COST:
            told = f"Inverting and redrawing alone cost {redrawn.text} points of accuracy ({redrawn.interval})"
            found.append(Caution("care", f"{told}: that part of every drop is the editor's, not the edit's."))
        return found


def tested(run: Run) -> list[str]:
    """The models that were asked about a run's pictures, its own first."""
    own = part_name(run, "model")
    return [own, *(name for name in models_of(run) if name != own)] if run.results is not None else [own]


def collect(run: Run, album: Album, *, model: str, number: int, label: str, pictures: int) -> Content:
    """Read what one model made of a run's edits; pictures of its pairs go into the album."""
    begun = sorted(path.stem for path in (run.path / "stages").glob("*.jsonl"))
    stages = sorted(begun, key=lambda name: list(STAGES).index(name) if name in STAGES else len(STAGES))
    skipped = [trial for trial in run.trials if trial.ending == "skipped"]
    if run.results is None:
        return Content(run, number, label, model, None, skipped=skipped, stages=stages)
    own = model == part_name(run, "model")
    results = run.results if own else lance_results(run, seed=int(run.spec.get("seed", 0)), model=model)
    wanted = {name for entry in results["bias"][:BIASES] for name in entry["examples"][:EXAMPLES]}
    made = [trial.trial_id for trial in run.trials if trial.arm == "edited" and trial.image]
    chosen = set(heapq.nsmallest(pictures, made, key=lambda name: hashlib.sha256(name.encode()).digest()))
    pairs = _pairs(run, album, model, wanted | chosen)
    return Content(
        run=run,
        number=number,
        label=label,
        model=model,
        results=results,
        biases=[
            Bias(entry, [pairs[name] for name in entry["examples"][:EXAMPLES] if name in pairs])
            for entry in results["bias"][:BIASES]
        ],
        gallery=sorted(
            (pair for name, pair in pairs.items() if name in chosen),
            key=lambda pair: (-(pair.moved or 0), pair.trial.trial_id),
        ),
        skipped=skipped,
        missing=len(album.missing.get(run.path, ())),
        edits=len(made),
        stages=stages,
    )


def _pairs(run: Run, album: Album, model: str, wanted: set[str]) -> dict[str, Pair]:
    oracle = part_name(run, "oracle")
    images = {name.rpartition("#")[0] for name in wanted}
    said: dict[tuple[str, str], Prediction] = {}
    for each in run.predictions(model):
        if each.trial_id in wanted or (each.picture == "clean" and each.trial_id.rpartition("#")[0] in images):
            said[each.trial_id if each.picture == "made" else each.trial_id.rpartition("#")[0], each.picture] = each
    judged: dict[tuple[str, str], Verdict] = {}
    for verdict in run.verdicts(oracle):
        key = (verdict.trial_id, verdict.picture)
        if verdict.picture == "made" and verdict.trial_id in wanted and (verdict.keeps_label is not None or key not in judged):
            judged[key] = verdict

    found = {}
    for trial in run.trials:
        if trial.trial_id in wanted:
            before, after = said.get((trial.image_id, "clean")), said.get((trial.trial_id, "made"))
            found[trial.trial_id] = Pair(
                trial,
                answer_name(run, trial.label),
                album.keep(run.path, trial.clean),
                album.keep(run.path, trial.image),
                before,
                after,
                judged.get((trial.trial_id, "made")),
                answer_name(run, after.predicted, after.said) if after else "",
            )
    return found
