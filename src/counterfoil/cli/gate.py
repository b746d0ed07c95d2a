"""`counterfoil gate`: pass or fail, for a pipeline that must decide."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from counterfoil import protocols
from counterfoil.cli.options import Results, prints_results
from counterfoil.cli.output import output
from counterfoil.core.errors import UsageError
from counterfoil.metrics.gate import MARGIN, check_against, check_bars, junit, parse_bar
from counterfoil.metrics.observations import Observations
from counterfoil.metrics.prediction_files import MEASURES as PREDICTIONS
from counterfoil.metrics.prediction_files import SUFFIXES, read_predictions
from counterfoil.metrics.slices import read_slices
from counterfoil.report.provenance import check_sources, differences
from counterfoil.store import Run, open_run

Bars = list[str] | None
Text = str | None
File = Path | None


@prints_results
def gate(
    results: Results,
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    minimum: Annotated[Bars, typer.Option("--min", metavar="NAME=NUMBER", help="What a number must reach, as in fmr=60.")] = None,
    maximum: Annotated[Bars, typer.Option("--max", metavar="NAME=NUMBER", help="What it must not exceed, as in drop=10.")] = None,
    against: Annotated[File, typer.Option(metavar="RUN", help="A baseline that the run must not fall behind.")] = None,
    margin: Annotated[
        float | None,
        typer.Option(help=f"Against the baseline: points that may be lost at most. [default: {MARGIN:g}]", min=0),
    ] = None,
    allow_unproven: Annotated[
        bool, typer.Option("--allow-unproven", help="Against the baseline: fail only on a loss that a paired test shows.")
    ] = False,
    alpha: Annotated[float, typer.Option(help="Chance of a wrong verdict that is taken.", min=1e-4, max=0.5)] = 0.05,
    point: Annotated[bool, typer.Option("--point", help="Judge bars by the value alone, not by its interval.")] = False,
    model: Annotated[Text, typer.Option(help="Another model that was scored on the run's images.")] = None,
    oracle: Annotated[Text, typer.Option(help="Another oracle that judged them.")] = None,
    slices: Annotated[File, typer.Option(metavar="FILE", help="A CSV with image_id and slices that bars may name.")] = None,
    junit_file: Annotated[File, typer.Option("--junit", metavar="FILE", help="Also write the verdicts as JUnit XML.")] = None,
) -> None:
    """Pass or fail a run, for a pipeline.

    Exit 0 if its numbers clear the bars and do not fall behind the baseline, 1 if not.

    \b
    counterfoil gate runs/new --min fmr=60
    counterfoil gate runs/new --against runs/released --margin 3
    counterfoil gate new.csv --against old.csv --margin 2
    """
    if not minimum and not maximum and against is None:
        raise UsageError("nothing to judge by; give a bar, as in --min fmr=60, or a baseline, as in --against RUN")
    if margin is not None and against is None:
        raise UsageError("--margin is a distance from a baseline; name it with --against RUN")
    if allow_unproven and (margin is not None or against is None):
        raise UsageError("--allow-unproven takes a baseline, as in --against RUN, and no --margin")
    allowed = None if allow_unproven else MARGIN if margin is None else margin
    write_xml = output(junit_file, "--junit")
    files = run.suffix in SUFFIXES
    opened = None if files else _open_finished(run)
    protocol = None if opened is None else protocols.of(opened)
    known = PREDICTIONS if opened is None or protocol is None else protocol.measures_of(opened)
    bars = [parse_bar(text, "min", known) for text in minimum or []] + [parse_bar(text, "max", known) for text in maximum or []]
    held: Sequence[str] = list(PREDICTIONS) if protocol is None else protocol.held
    if opened is None or protocol is None:
        rows = read_predictions(run)
    else:
        rows = protocol.observe(opened, model=model, oracle=oracle)
        if why := protocol.unfair(opened, rows.model, [bar.measure.name for bar in bars] or held):
            raise UsageError(f"{run}: {why}")
    whole = read_slices(slices, rows) if slices else rows
    checks = check_bars(whole, bars, alpha=alpha, point=point)
    undecided = {"run": rows.undecided}
    if against is not None:
        if opened is None:
            theirs = read_predictions(against)
        else:
            theirs = _baseline(opened, _open_finished(against), model=model, oracle=oracle)
        theirs = read_slices(slices, theirs) if slices else theirs
        undecided["baseline"] = theirs.undecided
        asked = list({bar.name: bar for bar in bars}.values())
        checks += check_against(whole, theirs, asked or [known[name] for name in held], alpha=alpha, margin=allowed)
    failed = sum(not check.passed for check in checks)
    notes = [f"{'in the baseline ' if where == 'baseline' else ''}{each}" for where, each in undecided.items() if each.number]
    write_xml(junit(checks, subject=run.resolve().name, notes=notes))
    told = {"checks": [each.to_dict() for each in checks], "undecided": {key: each._asdict() for key, each in undecided.items()}}
    results.text(*(f"{'pass' if check.passed else 'FAIL'}  {check.asked}: {check.answer}" for check in checks))
    results.text(*(f"note  {note}; the verdict may change once they are decided" for note in notes))
    results.text(f"gate: {f'{failed} of {len(checks)} failed' if failed else f'all {len(checks)} passed'}")
    results.data({"run": str(run), "passed": not failed, **told})
    raise typer.Exit(1 if failed else 0)


def _open_finished(path: Path) -> Run:
    """A run whose numbers are there; others would be judged by the images that happen to be done."""
    run = open_run(path)
    if run.results is None:
        raise UsageError(f"{path}: not finished, so there is nothing to judge yet; repeat its command first")
    return run


def _baseline(run: Run, baseline: Run, *, model: str | None, oracle: str | None) -> Observations:
    """The rows of the baseline. Only for the same test."""
    unlike = differences([run, baseline])
    if unlike:
        raise UsageError(f"{baseline.path}: not the same test as {run.path}: {'; '.join(unlike[:4])}; repeat the baseline run")
    protocol = protocols.of(baseline)
    theirs = protocol.observe(baseline, model=model if len(protocol.models(baseline)) > 1 else None, oracle=oracle)
    if pixels := check_sources([run, baseline]):
        raise UsageError(f"{baseline.path}: not the same test as {run.path}: {pixels} differ; repeat the baseline run")
    return theirs
