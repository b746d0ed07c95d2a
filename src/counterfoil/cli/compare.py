"""`counterfoil compare`: which models can be told apart, and by how much they differ."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterfoil.cli.output import echo
from counterfoil.core.errors import UsageError
from counterfoil.core.naming import part_name
from counterfoil.metrics.comparison import agreement_across, lines
from counterfoil.metrics.comparison import compare as compare_models
from counterfoil.metrics.observations import Measure, Observations, find_measure
from counterfoil.metrics.same_test import check_sources, differences
from counterfoil.metrics.tables import tau_text, text_of
from counterfoil.protocols.base import Protocol
from counterfoil.protocols.fmr.transfer import MEANINGS as CELLS
from counterfoil.protocols.fmr.transfer import tables_of as transfer_tables
from counterfoil.protocols.fmr.transfer import transfer_of
from counterfoil.protocols.reading import measures_of, protocol_of
from counterfoil.store import Run, open_run

Names = list[str] | None


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.")],
    metric: Annotated[Names, typer.Option(help="A number to compare, as in FMR; may be repeated.")] = None,
    scored: Annotated[bool, typer.Option("--scored", help="Also the other models scored on each run's pictures.")] = False,
    transfer: Annotated[
        bool, typer.Option("--transfer", help="Print the transfer matrix of the models scored on each run's pictures, and stop.")
    ] = False,
    alpha: Annotated[float, typer.Option(help="Chance of seeing a difference where there is none.", min=1e-4, max=0.5)] = 0.05,
) -> None:
    """Compare models with paired tests.

    Paired by source image, with intervals and corrected p-values.

    \b
    counterfoil compare runs/fmr-resnet50 runs/fmr-convnext
    """
    opened = [open_run(path) for path in runs]
    protocol, known = protocol_of(opened), measures_of(opened)
    measures = [find_measure(name, known) for name in metric or protocol.compared if metric or name in known]
    if transfer:
        return _print_transfer(opened, [each.name for each in measures] if metric else ["FMR"])
    contenders = _contenders(protocol, opened, scored=scored)
    if len(contenders) < 2:
        if empty := [str(run.path) for run in opened if not protocol.models(run)]:
            raise UsageError(f"{', '.join(empty)}: tests only surrogates, which the set was made against; compare other models")
        raise UsageError(f"{runs[0]}: one model by itself; give another run, or --scored after 'counterfoil score'")
    unlike = [*differences(opened), *filter(None, [check_sources(opened)])]
    if unlike:
        echo(f"Not the same test, so a difference need not be the model's: {'; '.join(unlike)}.\n")
    if begun := [str(run.path) for run in opened if run.results is None]:
        echo(f"Not finished, so that only the images done so far count: {', '.join(begun)}.\n")
    for remark in protocol.remarks(opened, {label: each.model for label, each in contenders.items()}):
        echo(f"{remark}\n")
    for line in lines(compare_models(contenders, measures, clean=protocol.measures[protocol.clean], alpha=alpha)):
        echo(line)
    for line in _orders(protocol, opened, measures):
        echo(line)


def _print_transfer(runs: list[Run], names: list[str]) -> None:
    """Pictures made against one model, scored on the others."""
    unknown = [name for name in names if name not in CELLS]
    if unknown:
        raise UsageError(f"--transfer: a cell has no {unknown[0]}; it has {', '.join(CELLS)}")
    matrix = transfer_of(runs)
    echo(text_of(transfer_tables(matrix, [*names, "harm"])))


def _contenders(protocol: Protocol, runs: list[Run], *, scored: bool) -> dict[str, Observations]:
    """The rows to compare, under names that tell them apart: the model, with its run's folder or path where needed."""
    found = [(run, name) for run in runs for name in protocol.models(run, scored=scored)]
    named: dict[str, Observations] = {}
    for run, name in found:
        twice = sum(other == name for _, other in found) > 1
        folders = sum(each.path.resolve().name == run.path.resolve().name for each, other in found if other == name)
        label = name if not twice else f"{name} ({run.path.resolve().name if folders == 1 else run.path})"
        if label in named:
            raise UsageError(f"{run.path}: given twice; name each run once")
        named[label] = protocol.observe(run, model=name)
    return named


def _orders(protocol: Protocol, runs: list[Run], measures: list[Measure]) -> list[str]:
    """Whether the models' order holds from one generator, or oracle, to another, where the runs can say so."""
    found: list[str] = []
    for role in ("generator", "oracle"):
        settings: dict[str, dict[str, Observations]] = {}
        for run in runs:
            for name in protocol.models(run):
                settings.setdefault(part_name(run.spec.get(role)), {})[name] = protocol.observe(run, model=name)
        complete = len({tuple(sorted(each)) for each in settings.values()}) == 1
        if len(settings) < 2 or not complete or len(next(iter(settings.values()))) < 2:
            continue
        found += ["", f"The same models under another {role}: Kendall's tau between their orders (95 % interval)"]
        for each in measures:
            for (one, two), tau in agreement_across(settings, each).items():
                found.append(f"  {each.name}: {one} against {two}: {tau_text(tau)}")
    return found
