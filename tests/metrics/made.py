"""Outcomes made up from plain lists, for metrics that do not care where they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from counterfoil.metrics import comparison, gate
from counterfoil.metrics.observations import ABSENT, Measure, Observations
from counterfoil.protocols.fmr.outcomes import Outcomes
from counterfoil.protocols.fmr.results import MEASURES, observations_of

SA = MEASURES["SA"]


def outcomes(
    clean: Sequence[int],
    made: Sequence[int],
    *,
    validated: Sequence[int] | None = None,
    keys: Sequence[int] | None = None,
    label: Sequence[int] | None = None,
    oracle_clean: Sequence[int] | None = None,
    classes: tuple[str, ...] = ("ant", "bee", "cat"),
    model: str = "m",
) -> Outcomes:
    """One entry an image: 1 right or accepted, 0 not; by default all accepted, of the first class and seen by the oracle."""
    count = len(clean)
    accepted = np.array(validated if validated is not None else [1] * count, dtype=np.int8)
    right = np.array(made, dtype=np.int8)
    absent = np.full(count, ABSENT, dtype=np.int8)
    empty = np.zeros((count, 0), dtype=np.int8)
    return Outcomes(
        model=model,
        oracle="o",
        classes=classes,
        skipped=0,
        endings={},
        keys=np.array(keys if keys is not None else range(count), dtype=np.uint64),
        label=np.array(label if label is not None else [0] * count),
        clean_correct=np.array(clean, dtype=np.int8),
        reconstruction_correct=np.array(clean, dtype=np.int8),
        oracle_clean=np.array(oracle_clean if oracle_clean is not None else [1] * count, dtype=np.int8),
        validated=accepted,
        made_correct=np.where(accepted == 1, right, ABSENT).astype(np.int8),
        steps=np.ones(count, dtype=np.int64),
        stopped=np.zeros(count, dtype=bool),
        path_correct=empty,
        random_validated=absent,
        random_made_correct=absent,
        random_steps=np.ones(count, dtype=np.int64),
        random_path_correct=empty,
    )


def draw_outcomes(
    count: int, seed: int, *, clean: float = 0.8, kept: float = 0.6, accepted: float = 0.9, **more: object
) -> Outcomes:
    """Outcomes by chance."""
    draw = np.random.default_rng(seed)
    right = draw.random(count) < clean
    return outcomes(
        right.astype(int).tolist(),
        (right & (draw.random(count) < kept)).astype(int).tolist(),
        validated=(draw.random(count) < accepted).astype(int).tolist(),
        **more,  # type: ignore[arg-type]
    )


def as_observations(found: Outcomes | Observations) -> Observations:
    """Outcomes in the form that comparisons take."""
    return observations_of(found) if isinstance(found, Outcomes) else found


def compare(contenders: Mapping[str, Outcomes], measures: Sequence[Measure], **options: Any) -> comparison.Comparison:
    """Compare models by their outcomes."""
    return comparison.compare({name: as_observations(each) for name, each in contenders.items()}, measures, clean=SA, **options)


def agreement_across(settings: Mapping[str, Mapping[str, Outcomes]], *given: Any, **options: Any) -> Any:
    """Tau between settings, from outcomes."""
    found = {name: {model: as_observations(each) for model, each in group.items()} for name, group in settings.items()}
    return comparison.agreement_across(found, *given, **options)


def check_bars(found: Outcomes | Observations, bars: Sequence[gate.Bar], **options: Any) -> list[gate.Check]:
    """Bars over outcomes."""
    return gate.check_bars(as_observations(found), bars, **options)


def check_against(one: Outcomes, two: Outcomes, about: Sequence[Any], **options: Any) -> list[gate.Check]:
    """A baseline, from outcomes."""
    return gate.check_against(as_observations(one), as_observations(two), about, **options)


def parse_bar(text: str, sense: gate.Sense) -> gate.Bar:
    """A bar on a number of FMR."""
    return gate.parse_bar(text, sense, MEASURES)
