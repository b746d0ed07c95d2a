"""`counterfoil compare`: which models can be told apart, and by how much they differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from counterfoil import protocols
from counterfoil.cli.output import echo
from counterfoil.core.errors import UsageError
from counterfoil.core.naming import part_name
from counterfoil.metrics.comparison import agreement_across, comparison_tables, lines
from counterfoil.metrics.comparison import compare as compare_models
from counterfoil.metrics.observations import Measure, Observations, find_measure
from counterfoil.metrics.prediction_files import MEASURES as PREDICTIONS
from counterfoil.metrics.prediction_files import SUFFIXES, read_predictions
from counterfoil.metrics.same_test import check_sources, differences
from counterfoil.metrics.slices import read_slices
from counterfoil.metrics.slices import slices as find_slices
from counterfoil.metrics.slices import table_of as slice_table
from counterfoil.metrics.tables import Table, as_csv, as_latex, as_markdown, as_text, tau_text, text_of
from counterfoil.protocols.base import Protocol
from counterfoil.protocols.fmr.transfer import MEANINGS as CELLS
from counterfoil.protocols.fmr.transfer import tables_of as transfer_tables
from counterfoil.protocols.fmr.transfer import transfer_of
from counterfoil.protocols.reading import measures_of, protocol_of, scoreboard_of
from counterfoil.store import Run, open_run

Names = list[str] | None


def compare(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run directories.")],
    metric: Annotated[Names, typer.Option(help="A number to compare, as in FMR; may be repeated.")] = None,
    scored: Annotated[bool, typer.Option("--scored", help="Also the other models scored on each run's images.")] = False,
    transfer: Annotated[
        bool, typer.Option("--transfer", help="Print the transfer matrix of the models scored on each run's images, and stop.")
    ] = False,
    alpha: Annotated[float, typer.Option(help="Chance of seeing a difference where there is none.", min=1e-4, max=0.5)] = 0.05,
    by: Annotated[Names, typer.Option(help="Print where each model fails, by class, factor …; may be repeated.")] = None,
    slices: Annotated[Path | None, typer.Option(metavar="FILE", help="A CSV with image_id and slices of your own.")] = None,
    form: Annotated[str, typer.Option("--format", help="text, md, csv or tex.")] = "text",
) -> None:
    """Compare models with paired tests.

    Paired by source image, with intervals and corrected p-values. Runs of several protocols give one table, models by tests;
    files of predictions (CSV, Parquet, JSONL, JSON) are compared like runs.

    \b
    counterfoil compare runs/fmr-resnet50 runs/fmr-convnext
    counterfoil compare resnet50.csv convnext.csv
    """
    write = _writer(form)
    if files := [path for path in runs if path.suffix in SUFFIXES]:
        if len(files) < len(runs):
            raise UsageError("give run directories or files of predictions, not both; a run's images are not those of a file")
        stems = [path.stem for path in files]
        named = {str(path) if stems.count(path.stem) > 1 else path.stem: read_predictions(path) for path in files}
        if by or slices:
            return write(_slice_tables(named, list(PREDICTIONS.values())[:1], by, slices))
        return write(comparison_tables(compare_models(named, list(PREDICTIONS.values()), alpha=alpha)))
    opened = [open_run(path) for path in runs]
    if len({protocols.of(run).name for run in opened}) > 1:
        return write([scoreboard_of(opened, scored=scored, alpha=alpha)])
    protocol, known = protocol_of(opened), measures_of(opened)
    measures = [find_measure(name, known) for name in metric or protocol.compared if metric or name in known]
    if transfer:
        return _print_transfer(opened, [each.name for each in measures] if metric else ["FMR"])
    contenders = _contenders(protocol, opened, scored=scored)
    if by or slices:
        chosen = measures if metric else [known[name] for name in protocol.ranked if name in known][:1]
        return write(_slice_tables(contenders, chosen, by, slices))
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
    compared = compare_models(contenders, measures, clean=protocol.measures[protocol.clean], alpha=alpha)
    if form != "text":
        return write(comparison_tables(compared))
    for line in lines(compared):
        echo(line)
    for line in _orders(protocol, opened, measures):
        echo(line)


def _slice_tables(
    contenders: Mapping[str, Observations], measures: Sequence[Measure], by: Names, file: Path | None
) -> list[Table]:
    """Where each model fails: groups of images against the rest, the surely worst ones first."""
    found = []
    for name, observed in contenders.items():
        whole = read_slices(file, observed) if file else observed
        own = [each for each in whole.groups if each not in observed.groups]
        for measure in measures:
            table = slice_table(find_slices(whole, measure, by=by or own, pairs=len(by or own) > 1), measure)
            found.append(replace(table, title=f"{name}, {table.title}"))
    return found


def _writer(form: str) -> Callable[[Sequence[Table]], None]:
    """What prints tables in a format."""
    forms = {"text": lambda table: "\n".join(as_text(table)) + "\n", "md": as_markdown, "csv": as_csv, "tex": as_latex}
    if form not in forms:
        raise UsageError(f"--format {form}: no such format; there are {', '.join(forms)}")

    def write(tables: Sequence[Table]) -> None:
        echo("\n".join(forms[form](table) for table in tables).rstrip("\n"))

    return write


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
