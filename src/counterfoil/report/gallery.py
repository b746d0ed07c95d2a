"""The gallery: what became of each image, which images are shown, and their data as scripts.

Of a large run half of the images are those with the most confident mistakes, half a random choice. Trials are streamed; only
those that are shown are held.

data/run-1.js              names: the run's label, models, oracle and classes
data/gallery-1.js          an entry per trial, enough to filter by and to draw a card
data/history-1-001.js      entries and histories of some images, all trials of an image together
"""

from __future__ import annotations

import hashlib
import heapq
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args
from urllib.parse import urlencode

from counterfoil.core.naming import part_name, without_folders
from counterfoil.core.records import Picture, Prediction, Trial, Verdict
from counterfoil.report.images import ReportImages
from counterfoil.report.page import ImagePair
from counterfoil.store import Run
from counterfoil.store.files import key_of

Outcome = Literal["fooled", "kept", "already wrong", "unvalidated", "rejected", "skipped", "made"]

OUTCOMES: Final[dict[Outcome, str]] = {
    "fooled": "the model was right on the plain reconstruction and is wrong on the generated image",
    "kept": "the model is right on the generated image",
    "already wrong": "the model was wrong on the plain reconstruction already, before the search began",
    "unvalidated": "the oracle rejected the plain reconstruction, so nothing was made, or later what had been made",
    "skipped": "the source image could not be used",
}
"""Outcomes of an image that is searched from."""

WORDED: Final[dict[Outcome, str]] = {
    "fooled": "the model is wrong on the generated image, and was not wrong on its source",
    "kept": "the model is right on the generated image",
    "already wrong": "the model was wrong on the source image already",
    "unvalidated": "the oracle does not see the class in the generated image, so it does not count",
    "rejected": "a check rejected the image",
    "made": "the image was made; choose a model to see its answer",
    "skipped": "the source image could not be used",
}
"""The same for images made from words."""

ENDINGS: Final[dict[str, str]] = {
    "budget": "all steps were taken and the oracle rejected none",
    "oracle": "the oracle rejected the next step; the last accepted image was kept",
    "fooled": "the model was fooled, and the run was told to stop there",
    "queries": "all allowed model calls were spent",
    "unvalidated": "the oracle rejected the plain reconstruction",
    "skipped": "the source image could not be used",
    "made": "the image was made",
    "rejected": "a check rejected the image",
}

ARMS: Final[dict[str, str]] = {
    "guided": "steps that raise the tested model's loss",
    "random": "control: as far, or as many steps, in random directions",
    "edited": "an image changed to fit an edited caption",
    "painted": "an image painted from words, or one of a set as it is",
}


PICTURES: tuple[Picture, ...] = get_args(Picture)
SKIPPED_LISTED = 500  # skipped images named on the page; all of them are in the downloads

About = tuple[str, Picture]
"""The subject of an answer: a trial for what was made, an image for the images that all arms share."""


@dataclass(frozen=True)
class TrialAnswers:
    """The answers of the run's own model and oracle about a trial's images."""

    model: Mapping[Picture, Prediction]
    oracle: Mapping[Picture, Verdict]

    def outcome(self, trial: Trial) -> Outcome:
        """The trial's outcome; where the model's answers are missing, its answers along the search's path stand for them."""
        if trial.ending in ("skipped", "unvalidated", "rejected"):
            return trial.ending
        verdict, made = self.oracle.get("made"), self.model.get("made")
        if verdict is not None and verdict.keeps_label is False:  # judged later, as people do
            return "unvalidated"
        if trial.arm in ("edited", "painted"):
            if made is None:
                return "made"
            before = self.model.get("clean")
            right = before is None or before.correct
        else:
            path = [answer == trial.label for answer in trial.path_predicted] or [False]
            before = self.model.get("reconstruction")
            right = before.correct if before is not None else path[0]
            if made is None and path[-1]:
                return "kept"
        if made is not None and made.correct:
            return "kept"
        return "fooled" if right else "already wrong"


class RunAnswers:
    """All answers of a run's own model and oracle, by trial, and who else was asked later."""

    def __init__(self, run: Run, model: str) -> None:
        self._run, self._own = run, {"model": model, "oracle": part_name(run.spec.get("oracle"))}
        self._found: dict[tuple[About, str], Prediction | Verdict] = {}
        self.other_models: set[str] = set()
        self.other_oracles: set[str] = set()
        for role, name, each in self._all():
            if name == self._own[role]:
                _keep(self._found, (_about(each.trial_id, each.picture), role), each)
            else:
                (self.other_models if role == "model" else self.other_oracles).add(name)

    def of(self, trial: Trial) -> TrialAnswers:
        """The answers about one trial's images."""
        keys = {picture: _about(trial.trial_id, picture) for picture in PICTURES}
        known: list[Any] = [
            {picture: self._found[key, role] for picture, key in keys.items() if (key, role) in self._found} for role in self._own
        ]
        return TrialAnswers(*known)

    def of_others(self, chosen: Container[str]) -> dict[About, list[Prediction | Verdict]]:
        """Read later answers about the chosen images, the last of each model and oracle."""
        found: dict[About, dict[tuple[str, str], Prediction | Verdict]] = {}
        for role, name, each in self._all() if self.other_models or self.other_oracles else ():
            if name != self._own[role] and _image_of(each.trial_id) in chosen:
                _keep(found.setdefault(_about(each.trial_id, each.picture), {}), (role, name), each)
        return {about: list(each.values()) for about, each in found.items()}

    def _all(self) -> Iterator[tuple[str, str, Prediction | Verdict]]:
        yield from (("model", each.model, each) for each in self._run.predictions())
        yield from (("oracle", each.oracle, each) for each in self._run.verdicts())


def _keep(found: dict[Any, Prediction | Verdict], key: Any, answer: Prediction | Verdict) -> None:
    """Replace an earlier answer, but by no abstention."""
    if key not in found or isinstance(answer, Prediction) or answer.keeps_label is not None:
        found[key] = answer


@dataclass(frozen=True)
class GalleryEntry:
    """One trial of the gallery with all that is known of it."""

    key: str  # unique in the report, and part of an address
    trial: Trial
    said: TrialAnswers
    outcome: Outcome
    others: tuple[Prediction | Verdict, ...] = ()  # the last answers of models and oracles that were asked later

    @property
    def keys(self) -> set[int]:
        """The keys that its row among the run's observations may have."""
        trial = self.trial
        return {key_of(name) for name in (trial.image_id, trial.trial_id, f"{trial.trial_id}\0{trial.prompt}")}

    def later_predictions(self) -> dict[str, dict[Picture, Prediction]]:
        """The answers of each other model, by its name and by image."""
        found: dict[str, dict[Picture, Prediction]] = {}
        for each in self.others:
            if isinstance(each, Prediction):
                found.setdefault(each.model, {})[each.picture] = each
        return found


@dataclass(frozen=True)
class Collected:
    """A run as the report shows it."""

    run: Run
    number: int  # 1, 2, … in the report
    label: str
    model: str  # whose answers outcomes are of
    results: Mapping[str, Any] | None
    answers: RunAnswers
    shown: tuple[GalleryEntry, ...]
    images: int  # complete by now, skipped ones included
    expected: int | None  # how many there will be when the run is finished
    tally: Mapping[str, Mapping[str, int]]  # arm → outcome → trials
    endings: Mapping[str, int]  # of the guided arm
    skipped: Sequence[Trial] = field(default_factory=tuple)
    skipped_count: int = 0

    @property
    def validated(self) -> int:
        """Images whose generated image the oracle accepts; while the run is not finished, those that have one."""
        accepted = self.count("validated")
        return accepted if accepted is not None else self.made

    @property
    def made(self) -> int:
        """Images with a generated image that the oracle has not rejected."""
        return sum(count for name, count in self.tally.get("guided", {}).items() if name not in ("unvalidated", "skipped"))

    def count(self, name: str) -> int | None:
        """One of the counts in the results; None where there is none."""
        counts = (self.results or {}).get("counts")
        found = counts.get(name) if isinstance(counts, Mapping) else None
        return found if isinstance(found, int) else None

    @property
    def sampled(self) -> bool:
        """Tell whether the gallery shows some of the images only."""
        return len({each.trial.image_id for each in self.shown}) < self.images - self.skipped_count

    def class_name(self, index: int, said: str = "") -> str:
        """The name of a class; for one outside the run's, the name that the model gave, where it is known."""
        return answer_name(self.run, index, said)


def filter_of(where: Sequence[tuple[str, str]], run: int) -> str:
    """The filter of the gallery that shows a slice, as `class=boot&run=1`; empty where the gallery has no such filter."""
    wanted = {"factor" if name == "kind" else name: value for name, value in where}
    return urlencode({**wanted, "run": run}) if {"class", "factor"} >= set(wanted) else ""


def answer_name(run: Run, index: int, said: str = "") -> str:
    """Name an answer: by the run's class or, beyond these, by what the model itself calls it."""
    return run.classes[index] if 0 <= index < len(run.classes) else said or "another class"


def path_answers(trial: Trial) -> list[tuple[int, str]]:
    """The model's answers along a search, each as a class of the run or -1, and what it calls one outside them."""
    return list(zip(trial.path_predicted, trial.path_said or [""] * len(trial.path_predicted), strict=True))


def collect(run: Run, *, number: int, label: str, most: int, model: str | None = None) -> Collected:
    """Read a run and choose the images of its gallery."""
    model = part_name(run.spec.get("model")) if model is None else model
    answers = RunAnswers(run, model)
    tally: dict[str, Counter[str]] = {}
    endings: Counter[str] = Counter()
    skipped: list[Trial] = []
    ids: set[str] = set()
    images: set[str] = set()
    mistakes: dict[str, float] = {}
    for trial in run.trials:
        images.add(trial.image_id)
        said = answers.of(trial)
        found = said.outcome(trial)
        tally.setdefault(trial.arm, Counter())[found] += 1
        if found == "fooled" and trial.arm != "random" and (last := said.model.get("made")) is not None:
            mistakes[trial.image_id] = max(mistakes.get(trial.image_id, 0.0), last.confidence)
        if trial.arm == "guided":
            endings[trial.ending] += 1
        if trial.ending != "skipped":
            ids.add(trial.image_id)
        elif len(skipped) < SKIPPED_LISTED:
            skipped.append(trial)
    total = run.provenance.get("images")
    return Collected(
        run=run,
        number=number,
        label=label,
        model=model,
        results=run.results,
        answers=answers,
        shown=_entries(run, answers, chosen=_choose(ids, most, mistakes), number=number),
        images=len(images),
        expected=total if isinstance(total, int) else None,
        tally=tally,
        endings=endings,
        skipped=sorted(skipped, key=lambda each: _natural(each.image_id)),
        skipped_count=len(images) - len(ids),
    )


def mark(image_id: str) -> str:
    """A short stand-in for an image's id in addresses."""
    return hashlib.sha256(image_id.encode("utf-8", "replace")).hexdigest()[:12]


def _choose(ids: set[str], most: int, mistakes: Mapping[str, float]) -> set[str]:
    """Half of the images by their most confident mistake, the rest a random choice that depends on the ids alone."""
    worst = heapq.nlargest(most // 2, mistakes, key=lambda image_id: (mistakes[image_id], image_id))
    chosen = set(worst) if len(ids) > most else set()
    rest = heapq.nsmallest(most - len(chosen), ids - chosen, key=lambda image_id: (mark(image_id), image_id))
    return chosen | set(rest)


def _entries(run: Run, answers: RunAnswers, *, chosen: set[str], number: int) -> tuple[GalleryEntry, ...]:
    others = answers.of_others(chosen)
    shown = []
    for trial in run.trials:
        if trial.image_id in chosen and trial.ending != "skipped" and trial.arm != "source":
            said = answers.of(trial)
            key = f"{number}-{mark(trial.image_id)}-{mark(trial.variant)[:6] if trial.variant else trial.arm}"
            later = tuple(each for picture in PICTURES for each in others.get(_about(trial.trial_id, picture), ()))
            shown.append(GalleryEntry(key, trial, said, said.outcome(trial), later))
    return tuple(sorted(shown, key=lambda each: (_natural(each.trial.image_id), each.trial.arm, _natural(each.trial.variant))))


def _image_of(trial_id: str) -> str:
    return trial_id.rpartition("#")[0]


def _about(trial_id: str, picture: Picture) -> About:
    return (trial_id if picture == "made" else _image_of(trial_id), picture)


def _natural(text: str) -> list[tuple[int, int, str]]:
    """A key that puts `img 2` before `img 10`."""
    return [(0, int(piece), "") if piece.isdecimal() else (1, 0, piece) for piece in re.split(r"(\d+)", text) if piece]


PART = 60  # images whose histories are in one file


def write_gallery(collected: Collected, out: Path, images: ReportImages, *, name: Callable[[str], str]) -> list[str]:
    """Write a run's images and data; the scripts that the page has to load, as paths from the report's folder.

    `name` gives the names of parts as a report shows them.
    """
    (out / "data").mkdir(parents=True, exist_ok=True)
    number, run = collected.number, collected.run
    names = {
        "run": number,
        "label": collected.label,
        "model": name(collected.model),
        "oracle": name(part_name(run.spec.get("oracle"))),
        "scored": [name(each) for each in sorted(collected.answers.other_models)],
        "classes": list(run.classes),
    }
    entries: list[dict[str, Any]] = []
    histories: dict[int, list[dict[str, Any]]] = {}
    parts: dict[str, int] = {}
    for shown in collected.shown:
        part = parts.setdefault(shown.trial.image_id, len(parts)) // PART + 1
        entries.append({**_entry(shown, images, run.path, name), "part": part})
        histories.setdefault(part, []).append({**entries[-1], "history": _history(shown, name)})
    _script(out / f"data/run-{number}.js", "name", names)
    _script(out / f"data/gallery-{number}.js", "add", {"run": number, "entries": entries})
    for part, told in histories.items():
        _script(out / f"data/history-{number}-{part:03d}.js", "history", {"run": number, "entries": told})
    return [f"data/run-{number}.js", f"data/gallery-{number}.js"]


def _script(path: Path, call: str, data: Any) -> None:
    """A script that hands `data` over. JSON in ASCII is also valid JavaScript, whatever the text in it."""
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    path.write_text(f"counterfoil.{call}({text});\n", encoding="ascii")


def _entry(shown: GalleryEntry, images: ReportImages, run: Path, name: Callable[[str], str]) -> dict[str, Any]:
    trial, said = shown.trial, shown.said
    named = {"clean": trial.clean, "reconstruction": trial.reconstruction, "made": trial.image}
    found = {
        **{name: images.keep(run, file) for name, file in named.items()},
        "search": images.difference(run, trial.reconstruction or trial.clean, trial.image),  # what the search changed
        "generator": images.difference(run, trial.clean, trial.reconstruction),  # what the generator alone changed
    }
    return {
        "key": shown.key,
        "id": trial.image_id,
        "arm": trial.arm,
        "label": trial.label,
        "outcome": shown.outcome,
        "ending": trial.ending,
        "steps": trial.steps,
        **({"rejected": [trial.rejected_as, _short(trial.rejected_score)]} if trial.ending == "oracle" else {}),
        **{name: getattr(trial, name) for name in ("factor", "value", "reason") if getattr(trial, name)},
        "images": {name: [each.full, each.thumb] if each.thumb else [each.full] for name, each in found.items() if each},
        "missing": [name for name, path in named.items() if path and found[name] is None],
        "model": {picture: _prediction(each) for picture, each in said.model.items()},
        "scored": {
            name(who): {picture: _prediction(each) for picture, each in told.items()}
            for who, told in shown.later_predictions().items()
        },
        "oracle": {picture: _verdict(each) for picture, each in said.oracle.items()},
    }


def _history(shown: GalleryEntry, name: Callable[[str], str]) -> dict[str, Any]:
    trial = shown.trial
    return {
        "queries": trial.queries,
        "seed": str(trial.seed),  # too long for a JavaScript number
        "source": without_folders(trial.source),
        "sha256": trial.source_sha256,
        "loss": [_short(value) for value in trial.path_loss],
        "predicted": [said or index for index, said in path_answers(trial)],
        "score": [_short(value) for value in trial.path_score],
        "others": [{"who": name(who), **told} for who, told in map(_other, shown.others)],
        **{name: getattr(trial, name) for name in ("variant", "caption", "prompt", "quality") if getattr(trial, name)},
    }


def _prediction(said: Prediction) -> list[Any]:
    """The class by its number; one outside the run's by its name, where that is known."""
    return [said.said or said.predicted, said.correct, _short(said.confidence), _short(said.truth)]


def _verdict(said: Verdict) -> list[Any]:
    return [said.predicted, said.keeps_label, _short(said.score)]


def _other(said: Prediction | Verdict) -> tuple[str, dict[str, Any]]:
    if isinstance(said, Prediction):
        return said.model, {"role": "model", "picture": said.picture, "said": _prediction(said)}
    return said.oracle, {"role": "oracle", "picture": said.picture, "said": _verdict(said)}


def _short(value: float) -> float | None:
    """Five significant digits; nothing for what is not a number."""
    return float(f"{value:.5g}") if math.isfinite(value) else None


def pair_of(collected: Collected, entry: GalleryEntry, images: ReportImages, *, note: str = "") -> ImagePair:
    """One trial as a pair: its source, or what it was redrawn to, and what was made of it."""
    trial, answer = entry.trial, entry.said.model.get("made")
    return ImagePair(
        before=images.keep(collected.run.path, trial.clean),
        after=images.keep(collected.run.path, trial.image),
        truth=collected.class_name(trial.label),
        answer=collected.class_name(answer.predicted, answer.said) if answer else "not asked",
        right=bool(answer and answer.correct),
        confidence=answer.confidence if answer else None,
        note=note,
        to=f"#image={entry.key}",
    )


def strongest(entries: Sequence[GalleryEntry], most: int) -> list[GalleryEntry]:
    """The most confident mistakes that the generated image caused, one per class first."""
    wrong = [each for each in entries if each.outcome == "fooled" and each.trial.arm != "random" and "made" in each.said.model]
    wrong.sort(key=lambda each: (-each.said.model["made"].confidence, each.key))
    first: dict[int, GalleryEntry] = {}
    for each in wrong:
        first.setdefault(each.trial.label, each)
    ordered = [*first.values(), *(each for each in wrong if first[each.trial.label] is not each)]
    return ordered[:most]
