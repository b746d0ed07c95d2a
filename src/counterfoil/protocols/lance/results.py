"""LANCE's numbers: how much accuracy a model loses when one factor of an image is edited.

All are taken over pairs of a source image and an edited one that passed quality control and in which the oracle still
sees the class. Edits of one source are drawn together in every interval and exchanged together in every test. A drop is
accuracy on the sources less accuracy on their edits, a source counting once for each of its edits; sensitivity is how far
the probability of the true class moves. The reconstruction is a control: what inverting and redrawing do without an edit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.errors import BadRun
from counterfoil.core.naming import part_name
from counterfoil.core.records import LEVEL, Estimate, Trial
from counterfoil.metrics.estimate import (
    RESAMPLES,
    Difference,
    Mean,
    Resamples,
    Share,
    Statistic,
    estimate,
    estimate_one,
    holm,
    sign_flip,
    stored_p,
)
from counterfoil.metrics.observations import (
    NO,
    YES,
    Answers,
    Codes,
    Measure,
    Observations,
    Undecided,
    class_column,
    class_names,
    read_answers,
)
from counterfoil.protocols.lance import FACTORS
from counterfoil.protocols.lance.bias import edit_groups
from counterfoil.store import Run
from counterfoil.store.files import key_of
from counterfoil.store.stages import FOLDER, StageTable

TOP = 5
"""The released code takes the probability of a class that is not among a model's first five answers for zero."""

STAGES = ("sources", "captions", "edits", "inversions", "pictures", "quality")
"""The stages with checks, in their order."""

_NONE = "no edit that the oracle accepts"
_NOT_REDRAWN = "no reconstruction was looked at"

MEANINGS = {
    "SA": "accuracy on the source images",
    "accuracy_source": "accuracy on the sources of the accepted edits, once for each edit",
    "accuracy_edited": "accuracy on the accepted edits",
    "drop": "accuracy_source less accuracy_edited: accuracy lost to the edits",
    "drop_reconstruction": "control: accuracy lost to inverting and redrawing alone",
    "sensitivity": "how far the probability of the true class moves, in points",
    "VR": "share of the edits that passed quality control in which the oracle sees the class",
}


def statistics_of(prefix: str = "") -> dict[str, Statistic]:
    """The statistics over columns of that prefix."""
    source, edited = Share(f"{prefix}clean_right", f"{prefix}pairs", _NONE), Share(f"{prefix}made_right", f"{prefix}pairs", _NONE)
    return {
        "accuracy_source": source,
        "accuracy_edited": edited,
        "drop": Difference(source, edited),
        "sensitivity": Mean(f"{prefix}moved", f"{prefix}pairs", _NONE, most=100),
    }


STATISTICS: dict[str, Statistic] = {
    "SA": Share("right", "asked", "no source image that the model was asked about; an edit's source counts in accuracy_source"),
    **statistics_of(),
    "drop_reconstruction": Difference(
        Share("clean_right_reconstructed", "reconstructed", _NOT_REDRAWN),
        Share("reconstruction_right", "reconstructed", _NOT_REDRAWN),
    ),
    "VR": Share("accepted", "judged", "no edit that the oracle has decided on"),
}
"""The numbers over all edits, by name: in results, bars and comparisons the same."""

MEASURES: Mapping[str, Measure] = {
    name: Measure(name, each, MEANINGS[name], higher_is_better=isinstance(each, Share)) for name, each in STATISTICS.items()
}
"""Everything in a run's results; drops and sensitivities are the better the smaller they are."""


@dataclass(frozen=True)
class Pairs:
    """One row per edited image that passed quality control, for one model and one oracle."""

    model: str
    oracle: str
    classes: tuple[str, ...]
    image: NDArray[np.int64]  # number of the source image; edits of one source share it
    ids: NDArray[Any]  # of the edits: trial ids
    label: NDArray[np.int64]
    factor: NDArray[Any]
    caption: NDArray[Any]
    prompt: NDArray[Any]
    value: NDArray[Any]  # the words that were put in
    accepted: Codes  # whether the oracle sees the class in the edited image; OPEN while it abstains
    clean_correct: Codes
    reconstruction_correct: Codes
    made_correct: Codes
    clean_truth: NDArray[np.float64]  # probability of the true class, NaN where the model was not asked
    made_truth: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.image)

    @property
    def counted(self) -> NDArray[np.bool_]:
        """The rows that the measures are taken over: accepted, and with an answer for both images."""
        rows: NDArray[np.bool_] = (self.accepted == YES) & (self.clean_correct >= NO) & (self.made_correct >= NO)
        return rows

    @property
    def pending(self) -> int:
        """The number of edits that the oracle has not decided on."""
        return int(np.count_nonzero(self.accepted < NO))

    @property
    def sensitivity(self) -> NDArray[np.float64]:
        """The change of the true class's probability, in points."""
        return np.abs(self.clean_truth - self.made_truth) * 100

    def take(self, rows: NDArray[Any]) -> Pairs:
        """The same for some of the rows."""
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        return replace(self, **{name: value[rows] for name, value in columns.items() if isinstance(value, np.ndarray)})


@dataclass(frozen=True)
class SourceRows:
    """One row per readable source image."""

    ids: list[str]
    label: NDArray[np.int64]
    clean_correct: Codes
    oracle_clean: Codes
    skipped: int


def read_pairs(run: Run, *, model: str | None = None, oracle: str | None = None) -> tuple[SourceRows, Pairs]:
    """Read the sources and pairs of a run for a model and an oracle; by default those it was made with."""
    own_oracle = part_name(run.spec.get("oracle"))
    model, oracle = model or part_name(run.spec.get("model")), oracle or own_oracle
    predictions = read_answers(run, "predictions", model, ("truth", "rank"))
    verdicts = read_answers(run, "verdicts", oracle)
    sources: dict[str, int] = {}
    edits, skipped = [], 0
    for trial in run.trials:
        if trial.arm == "source":
            skipped += trial.ending == "skipped"
            if trial.ending != "skipped":
                sources[trial.image_id] = trial.label
        elif trial.arm == "edited" and trial.image:
            edits.append(trial)
    if edits and not len(predictions):
        raise BadRun(f"{run.path}: no predictions by model {model!r}; ask it with 'counterfoil score {run.path} --model {model}'")
    if edits and not len(verdicts) and oracle != own_oracle:
        raise BadRun(f"{run.path}: no verdicts by oracle {oracle!r}; ask it with 'counterfoil judge'")
    number = {image_id: index for index, image_id in enumerate(sources)}
    images, trials = [trial.image_id for trial in edits], [trial.trial_id for trial in edits]
    top = TOP if run.spec.get("preset") == "released" else None
    pairs = Pairs(
        model=model,
        oracle=oracle,
        classes=tuple(run.classes),
        image=np.array([number[image_id] for image_id in images], dtype=np.int64),
        ids=_texts(trials),
        label=np.array([trial.label for trial in edits], dtype=np.int64),
        **{name: _texts([getattr(trial, name) for trial in edits]) for name in ("factor", "caption", "prompt", "value")},
        accepted=verdicts.codes(trials, "made"),
        clean_correct=predictions.codes(images, "clean"),
        reconstruction_correct=predictions.codes(images, "reconstruction"),
        made_correct=predictions.codes(trials, "made"),
        clean_truth=_truth(predictions, images, "clean", top),
        made_truth=_truth(predictions, trials, "made", top),
    )
    ids = list(sources)
    clean = predictions.codes(ids, "clean"), verdicts.codes(ids, "clean")
    return SourceRows(ids, np.array(list(sources.values()), dtype=np.int64), *clean, skipped), pairs


def observe(run: Run, *, model: str | None = None, oracle: str | None = None) -> Observations:
    """Read a run as one row per source image and one per edit of it. Edits pair with edits of the same words alone."""
    stored = run.results if model in (None, part_name(run.spec.get("model"))) and oracle is None else None
    sources, pairs = read_pairs(run, model=model, oracle=oracle)
    seed = int(run.spec.get("seed", 0))
    numbers = stored or _overall(sources, pairs, seed)
    names = [*sources.ids, *(f"{name}\0{words}" for name, words in zip(pairs.ids, pairs.prompt, strict=True))]
    keys = np.array([key_of(name) for name in names], dtype=np.uint64)
    own = _columns_of_sources(sources)
    made = {**columns_of(pairs, rows=pairs.counted), **_columns_of_verdicts(pairs)}
    columns = {name: np.concatenate([column, np.zeros(len(pairs), dtype=bool)]) for name, column in own.items()}
    columns |= {name: np.concatenate([np.zeros(len(sources.ids), column.dtype), column]) for name, column in made.items()}
    labels = np.concatenate([sources.label, pairs.label])
    nothing = np.full(len(sources.ids), "", dtype=object)
    order = np.argsort(keys)
    found = Observations(
        model=pairs.model,
        oracle=pairs.oracle,
        keys=keys,
        columns=columns,
        groups={
            "factor": np.concatenate([nothing, pairs.factor.astype(object)]),
            "class": class_column(pairs.classes, labels),
        },
        cluster=np.concatenate([np.arange(len(sources.ids)), pairs.image]),
        made=np.arange(len(keys)) >= len(sources.ids),
        undecided=Undecided(pairs.pending, "edit", pairs.oracle, "in no number"),
        seed=seed,
    ).take(order)
    return replace(found, estimates={name: Estimate.from_dict(numbers[name]) for name in STATISTICS})


def lance_results(run: Run, seed: int = 0, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
    """Compute the content of `results.json`."""
    sources, pairs = read_pairs(run, model=model, oracle=oracle)
    counted = pairs.take(pairs.counted)
    return {
        "protocol": "lance",
        **_overall(sources, pairs, seed),
        "factors": by_factor(counted, seed=seed),
        "largest": largest_drop(counted, seed=seed),
        "per_class": per_class(counted, seed=seed),
        "bias": edit_groups(run, counted, seed=seed),
        "funnel": funnel(run, pairs),
        "set": _set(run, pairs),
        "counts": _counts(sources, pairs),
        "model": {"name": pairs.model},
        "oracle": {"name": pairs.oracle, "clean_accuracy": _oracle_accuracy(sources, seed)},
        "interval": {"level": LEVEL, "resamples": RESAMPLES, "seed": seed},
    }


def columns_of(pairs: Pairs, prefix: str = "", rows: NDArray[np.bool_] | None = None) -> dict[str, NDArray[Any]]:
    """Zeros, ones and points, one row per counted pair, whose sums the statistics are made of."""
    chosen = np.ones(len(pairs), dtype=bool) if rows is None else rows
    return {
        f"{prefix}pairs": chosen,
        f"{prefix}clean_right": chosen & (pairs.clean_correct == YES),
        f"{prefix}made_right": chosen & (pairs.made_correct == YES),
        f"{prefix}reconstructed": chosen & (pairs.reconstruction_correct >= NO),
        f"{prefix}reconstruction_right": chosen & (pairs.reconstruction_correct == YES),
        f"{prefix}clean_right_reconstructed": chosen & (pairs.reconstruction_correct >= NO) & (pairs.clean_correct == YES),
        f"{prefix}moved": np.where(chosen, np.nan_to_num(pairs.sensitivity), 0.0),
    }


def by_factor(pairs: Pairs, *, seed: int = 0) -> dict[str, Any]:
    """The statistics for each factor that has a pair, and whether its drop can be chance, corrected for their number."""
    present, columns = _of_factors(pairs)
    if not present:
        return {}
    drawn = Resamples(columns, clusters=pairs.image, seed=(seed, 10))
    tests = [drop_p_value(pairs.take(pairs.factor == factor)) for factor in present]
    entries = {}
    for factor, p, adjusted in zip(present, tests, holm(tests), strict=True):
        rows = pairs.factor == factor
        found = {name: estimate_one(drawn, each).to_dict() for name, each in statistics_of(f"{factor} ").items()}
        numbers = {"edits": int(rows.sum()), "sources": len(np.unique(pairs.image[rows]))}
        entries[factor] = {**found, **numbers, "p": stored_p(p), "p_adjusted": stored_p(adjusted)}
    return entries


def drop_p_value(pairs: Pairs) -> float:
    """Exact two-sided p-value that edits change no answer but by chance: sources and edits exchanged, a source at a time."""
    change = (pairs.clean_correct == YES).astype(int) - (pairs.made_correct == YES).astype(int)
    _, places = np.unique(pairs.image, return_inverse=True)
    sums = np.zeros(int(places.max(initial=-1)) + 1, dtype=int)
    np.add.at(sums, places, change)
    return sign_flip(sums)


def largest_drop(pairs: Pairs, *, seed: int = 0) -> dict[str, Any] | None:
    """The factor with the largest drop, how far it is from the next, and whether that can be chance; None without a drop."""
    present, columns = _of_factors(pairs)
    if not present:
        return None
    drawn = Resamples(columns, clusters=pairs.image, seed=(seed, 11))
    drops = {factor: statistics_of(f"{factor} ")["drop"] for factor in present}
    values = {factor: float(drops[factor].of(drawn.observed)[0]) for factor in present}
    order = sorted(present, key=lambda factor: -values[factor])
    if values[order[0]] <= 0:
        return None
    entry: dict[str, Any] = {"factor": order[0]}
    if len(order) > 1:
        lead = Difference(drops[order[0]], drops[order[1]])
        # One-sided, and times the number of rivals: any of the others could have been the nearest one. A single rival could have
        # led as well, so that counts for two.
        p = min(1.0, drawn.p_value(lead) / 2 * max(len(order) - 1, 2))
        entry |= {"next": order[1], "lead": estimate_one(drawn, lead).to_dict(), "p": stored_p(p)}
    return entry


def per_class(pairs: Pairs, *, seed: int = 0) -> dict[str, Any]:
    """The statistics for each class, and for each factor within it; two classes of one name are told apart by their number."""
    entries: dict[str, Any] = {}
    for label, name in class_names(pairs.classes, pairs.label).items():
        own = pairs.take(pairs.label == label)
        present, columns = _of_factors(own)
        groups = {"": statistics_of(), **{factor: statistics_of(f"{factor} ") for factor in present}}
        named = {f"{group}|{key}": each for group, statistics in groups.items() for key, each in statistics.items()}
        found = estimate({**columns_of(own), **columns}, named, clusters=own.image, seed=(seed, 14, label))
        of = {group: {key: found[f"{group}|{key}"].to_dict() for key in groups[group]} for group in groups}
        entries[name] = {**of.pop(""), "edits": len(own), "factors": of}
    return entries


def funnel(run: Run, pairs: Pairs) -> list[dict[str, Any]]:
    """Count what each stage let through, and what its checks rejected and why; the last is the oracle that is asked about."""
    found = []
    for stage in STAGES:
        kept, turned = StageTable(run.path / FOLDER, stage).counts()
        if kept or turned:
            found.append({"stage": stage, "in": kept + turned.total(), "kept": kept, "turned_away": dict(turned.most_common())})
    accepted, lost = int((pairs.accepted == YES).sum()), int((pairs.accepted == NO).sum())
    away = {name: count for name, count in (("class lost", lost), ("undecided", len(pairs) - accepted - lost)) if count}
    return [*found, {"stage": "oracle", "in": len(pairs), "kept": accepted, "turned_away": away}]


def _of_factors(pairs: Pairs) -> tuple[list[str], dict[str, NDArray[Any]]]:
    """The factors that have a pair, in their order, and the columns of each."""
    present = [factor for factor in FACTORS if (pairs.factor == factor).any()]
    columns: dict[str, NDArray[Any]] = {}
    for factor in present:
        columns |= columns_of(pairs, f"{factor} ", pairs.factor == factor)
    return present, columns


def _columns_of_sources(sources: SourceRows) -> dict[str, NDArray[Any]]:
    """One row per source image: whether the model was asked about it, and is right."""
    return {"asked": sources.clean_correct >= NO, "right": sources.clean_correct == YES}


def _columns_of_verdicts(pairs: Pairs) -> dict[str, NDArray[Any]]:
    """One row per edit that passed quality control: whether the oracle has decided on it, and accepts."""
    return {"judged": pairs.accepted >= NO, "accepted": pairs.accepted == YES}


def _overall(sources: SourceRows, pairs: Pairs, seed: int) -> dict[str, Any]:
    counted = pairs.take(pairs.counted)
    clean = estimate(_columns_of_sources(sources), {"SA": STATISTICS["SA"]}, seed=seed)
    of_pairs = {name: each for name, each in STATISTICS.items() if name not in ("SA", "VR")}
    found = estimate(columns_of(counted), of_pairs, clusters=counted.image, seed=(seed, 12))
    rate = estimate(_columns_of_verdicts(pairs), {"VR": STATISTICS["VR"]}, clusters=pairs.image, seed=(seed, 13))
    return {name: each.to_dict() for name, each in {**clean, **found, **rate}.items()}


def _set(run: Run, pairs: Pairs) -> dict[str, Any]:
    """Measurements of the set when it was made: over the edits that the run's own oracle accepted then, and it says so."""
    row = StageTable(run.path / FOLDER, "set").one("set")
    if row is None:
        return {}
    found, own = dict(row.values), part_name(run.spec.get("oracle"))
    _, edits = found.get("frechet_pictures") or (0, 0)
    if pairs.oracle != own or edits != int((pairs.accepted == YES).sum()):
        when = f"of the {edits} edits that {own} accepted when they were made"
        found["frechet_note"] = "; ".join(filter(None, (found.get("frechet_note"), when)))
    return found


def _counts(sources: SourceRows, pairs: Pairs) -> dict[str, Any]:
    return {
        "images": len(sources.ids) + sources.skipped,
        "readable": len(sources.ids),
        "skipped": sources.skipped,
        "validated": len(np.unique(pairs.image[pairs.counted])),
        "edits": len(pairs),
        "accepted": int((pairs.accepted == YES).sum()),
        "rejected": int((pairs.accepted == NO).sum()),
        "pending": pairs.pending,
        "unscored": int(((pairs.accepted == YES) & ((pairs.clean_correct < NO) | (pairs.made_correct < NO))).sum()),
    }


def _oracle_accuracy(sources: SourceRows, seed: int) -> dict[str, Any]:
    columns = {"asked": sources.oracle_clean >= NO, "right": sources.oracle_clean == YES}
    share = {"clean": Share("right", "asked", "the oracle was not asked about source images")}
    return estimate(columns, share, seed=(seed, 3))["clean"].to_dict()


def _truth(predictions: Answers, keys: Sequence[str], picture: str, top: int | None) -> NDArray[np.float64]:
    """The probability of the true class; zero where the class is beyond the first `top` answers."""
    found = predictions.numbers(keys, picture, "truth")
    return found if top is None else np.where(predictions.numbers(keys, picture, "rank") > top, 0.0, found)


def _texts(values: Sequence[str]) -> NDArray[np.str_]:
    return np.array(values, dtype=str) if len(values) else np.array([], dtype="<U1")


def edited_trials(run: Run) -> list[Trial]:
    """The edits of a run that passed quality control."""
    return [trial for trial in run.trials if trial.arm == "edited" and trial.image]
