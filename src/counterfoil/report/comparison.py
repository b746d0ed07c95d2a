"""Several runs side by side: whether they may be compared, and which differences can be seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from counterfoil.core.errors import UsageError
from counterfoil.core.naming import short_name
from counterfoil.metrics.comparison import compare
from counterfoil.metrics.fmr import MEASURES, observe
from counterfoil.metrics.same_test import differences, differences_in_data, differences_in_sources
from counterfoil.report.cautions import Caution
from counterfoil.report.collect import Collected, part_name
from counterfoil.report.numbers import number
from counterfoil.store import Run

MEASURE = "FMR_matched"
ALPHA = 0.05


def labels(runs: Sequence[Run]) -> list[str]:
    """A name for every run: its model, with its folder or its place where that is not enough to tell runs apart."""
    whole = [part_name(run, "model") or "a model without a name" for run in runs]
    short = [short_name(name) for name in whole]
    # Two files of one name are told apart by their folders.
    names = [
        few if len({full for full, each in zip(whole, short, strict=True) if each == few}) == 1 else full
        for full, few in zip(whole, short, strict=True)
    ]
    folders = [run.path.resolve().name for run in runs]
    for extra in (folders, [f"run {place}" for place in range(1, len(runs) + 1)]):
        twice = {name for name in names if names.count(name) > 1}
        names = [f"{name} · {more}" if name in twice else name for name, more in zip(names, extra, strict=True)]
    return names


def together(found: Sequence[tuple[str, Run, Sequence[Caution]]], *, each_is: str = "run") -> list[Caution]:
    """What to know of all by their labels, as one list: whether they may be compared, then each caution once, with whose."""
    about: dict[Caution, list[str]] = {}
    for label, _, own in found:
        for each in own:
            about.setdefault(each, []).append(label)
    ordered = sorted(about.items(), key=lambda item: ("stop", "care", "note").index(item[0].kind))
    return [
        *_comparable(list({run.path: run for _, run, _ in found}.values())),
        *(
            Caution(each.kind, f"{f'Every {each_is}' if len(names) == len(found) else ', '.join(names)}: {each.text}")
            for each, names in ordered
        ),
    ]


def _comparable(runs: Sequence[Run]) -> list[Caution]:
    unlike = [*differences(runs), *differences_in_data(runs), *differences_in_sources(runs)]
    if not unlike:
        return []
    more = f" and {len(unlike) - 6} more" if len(unlike) > 6 else ""
    listed = "; ".join(unlike[:6])
    return [
        Caution("care", f"These runs differ in more than the model, so the numbers don't compare models alone: {listed}{more}.")
    ]


@dataclass(frozen=True)
class Order:
    """The runs ordered by matched FMR, as far as a comparison image by image tells them apart."""

    text: str = ""
    ranks: Mapping[str, str] = field(default_factory=dict)  # by label: `1`, or `2–3` where that is open


def order(runs: Sequence[Collected]) -> Order:
    """Who keeps most and least, and who cannot be told apart; nothing for fewer than two runs with an FMR."""
    finished = [run for run in runs if number(run.results, MEASURE).value is not None]
    if len(finished) < 2:
        return Order()
    try:
        ranking = compare({run.label: observe(run.run) for run in finished}, [MEASURES[MEASURE]]).rankings[0]
    except UsageError:
        return Order("These runs have no source image in common, so they cannot be compared image by image.")
    found = {run.label: number(run.results, MEASURE) for run in finished}
    ranked = sorted(found, key=lambda label: -(found[label].value or 0))
    most, least = ranked[0], ranked[-1]
    ranks = {label: str(best) if best == worst else f"{best}–{worst}" for label, (best, worst) in ranking.ranks.items()}
    if found[most].text == found[least].text:
        return Order(f"By matched FMR, all keep the same share of their accuracy ({found[most].text}\u00a0%).", ranks)
    text = f"By matched FMR, {most} keeps the largest share of its accuracy ({found[most].text}\u00a0%)"
    text += f" and {least} the smallest ({found[least].text}\u00a0%)."
    alike = [f"{each.first} and {each.second}" for each in ranking.pairs if not each.significant(ALPHA)]
    if not alike:
        return Order(f"{text} Compared image by image, all of them can be told apart.", ranks)
    if len(alike) == len(ranking.pairs):
        return Order(f"{text} Compared image by image, no two of them can be told apart.", ranks)
    more = f" and {len(alike) - 5} more pairs" if len(alike) > 5 else ""
    return Order(f"{text} Compared image by image, these cannot be told apart: {'; '.join(alike[:5])}{more}.", ranks)
