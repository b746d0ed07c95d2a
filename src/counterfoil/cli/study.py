"""`counterfoil study`: experiments on the instrument itself, and published tables with our runs next to them."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from counterfoil.cli.options import Number, Results, Text, Texts, prints_results
from counterfoil.core.errors import UsageError
from counterfoil.studies import NAMES


@prints_results
def study(
    results: Results,
    name: Annotated[
        Text, typer.Argument(help="A study, 'all', a published table such as fmr/6, or a table's YAML file; none lists them.")
    ] = None,
    runs: Annotated[
        Texts, typer.Argument(metavar="[RUN...]", help="For a table: run directories; MODEL=RUN names the published row.")
    ] = None,
    model: Annotated[Texts, typer.Option("--model", help="A model to study; may be repeated.")] = None,
    data: Annotated[Text, typer.Option(help="Labelled images, as for counterfoil run.")] = None,
    generator: Annotated[Text, typer.Option(help="The part that makes images.")] = None,
    oracle: Annotated[Text, typer.Option(help="The part that decides whether the class is still visible.")] = None,
    size: Annotated[Number, typer.Option(help="Image side in pixels, if neither generator nor model fixes it.", min=8)] = None,
    images: Annotated[Number, typer.Option(help="Source images at most.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Seed of the runs.", min=0)] = 0,
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 …")] = "cpu",
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder for findings and runs.")] = Path("studies"),
    only: Annotated[Texts, typer.Option("--only", help="With 'all': a study to run; may be repeated.")] = None,
    execute: Annotated[bool, typer.Option("--run", help="For a table: run the rows whose parts are all given.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="For a table: list what each row lacks on this machine.")] = False,
    settings: Annotated[
        Texts, typer.Option("--set", help="KEY=VALUE: an option of the study or the search; for a table DATA.models.ROW=NAME.")
    ] = None,
) -> None:
    """Run experiments on the instrument itself.

    By default studies run on the lab, whose truth is known. Exit code 1 if something that must hold there was not shown.

    \b
    counterfoil study transfer --images 60
    counterfoil study all
    counterfoil study fmr/6 runs/fmr-resnet50
    """
    from counterfoil.core.progress import counting, watching

    if name is None:
        return _list(results)
    if "/" in name or name.endswith((".yaml", ".yml")):
        options = {"folder": out, "images": images, "seed": seed, "device": device}
        return _table(results, name, runs or [], settings or [], execute, dry_run, **options)
    if runs or execute or dry_run:
        raise UsageError(f"study {name}: run directories, --run and --dry-run go with a published table, as in 'study fmr/6 RUN'")
    unknown = [each for each in only or [] if each not in NAMES]
    if unknown:
        raise UsageError(f"--only {unknown[0]}: no such study; there are {', '.join(NAMES)}")
    parts = {role: given for role, given in (("data", data), ("generator", generator), ("oracle", oracle)) if given is not None}
    base = _settings(name, model, parts, settings or [], size=size, images=images, seed=seed, device=device, folder=out)

    from counterfoil.studies import runner
    from counterfoil.studies.runs import Runs

    made = Runs(base, watching=watching, counting=counting)
    if name == "all":
        shown = _all(results, [each for each in NAMES if not only or each in only], base, made)
    else:
        report = runner.run(name, base, made)
        results.text(*report.lines(), "", *(f"not shown  {claim}" for claim in report.failed))
        results.data(report.to_dict())
        shown = not report.failed
    results.text(f"{out}  (findings as JSON, and the runs)")
    raise typer.Exit(0 if shown else 1)


def _list(results: Results) -> None:
    from counterfoil.studies import published

    known = {**NAMES, **{name: f"published table: {published.load(name).title}" for name in published.names()}}
    width = max(map(len, NAMES))
    results.text(*(f"{name:<{width}}  {shows}" for name, shows in known.items()))
    results.data(known)


def _settings(name: str, models: Texts, parts: dict[str, str], assignments: list[str], **values: Any) -> Any:
    """Read options into the settings of a study; defaults are those of the installed world."""
    from counterfoil import protocols, studies
    from counterfoil.core import spec as specs
    from counterfoil.studies.base import StudySettings, world

    known = world()
    own = studies.load(name).options if name != "all" else {}
    roles = ("data", "generator", "oracle")
    spec: dict[str, Any] = {role: getattr(known.parts, role).model_dump() for role in roles} if known else {}
    spec.update({role: {"name": given} for role, given in parts.items()})
    lacking = [role for role in roles if role not in spec]
    if lacking:
        raise UsageError(f"study: give --{' and --'.join(lacking)}, or pip install 'counterfoil[lab]' for its defaults")
    chosen: dict[str, Any] = {}
    for assignment in assignments:
        key = assignment.partition("=")[0].strip()
        if key in own:
            chosen |= specs.part("", [assignment]).options
        else:
            protocols.override(spec, assignment)
            if spec.keys() - {*roles, "search"}:
                takes = f"keys of the search, options of {', '.join(roles)}, and its own: {', '.join(own) or 'none'}"
                raise UsageError(f"--set {key}: not for a study, which takes {takes}")
    seed, device, images = values["seed"], values["device"], values["images"]
    checked = protocols.parse({"model": "any:", **spec, "seed": seed, "device": device, "limit": images})
    return StudySettings(
        models=tuple(specs.part(each) for each in models or ()), data=checked.data, generator=checked.generator,
        oracle=checked.oracle, search=spec.get("search", {}), options=chosen, **values,
    )  # fmt: skip


def _all(results: Results, names: list[str], base: Any, made: Any) -> bool:
    """Run all studies, print each as it is done, then the summary; tell whether everything that must hold was shown."""
    from counterfoil.metrics.tables import as_data, as_text
    from counterfoil.studies import runner

    began = time.monotonic()
    reports: dict[str, Any] = {}
    for report in runner.run_all(names, base, made):
        reports[report.study.name] = report
        results.text(*report.lines(), "")
    summary = runner.summary(reports, list(NAMES))
    runner.write(base.folder / "all.json", {"seed": base.seed, **as_data(summary)})
    missing = sum(len(each.failed) for each in reports.values())
    minutes, worked = (time.monotonic() - began) / 60, sum(each.cpu_seconds for each in reports.values()) / 60
    results.text(*as_text(summary))
    results.text(f"\n{len(reports)} studies, {minutes:.1f} minutes, {worked:.1f} minutes of CPU time")
    results.text(*([f"not shown: {missing} of what must hold, see the table"] if missing else []))
    results.data([each.to_dict() for each in reports.values()])
    return not missing


def _table(
    results: Results, name: str, paths: list[str], assignments: list[str], execute: bool, dry_run: bool, **values: Any
) -> None:
    """Print a published table, with stored runs next to it, or with those that are made now."""
    from counterfoil.core.progress import counting, watching
    from counterfoil.store import open_run
    from counterfoil.studies import published

    table = published.load(name)
    if paths and table.kind == "facts":
        raise UsageError(f"{name}: {table.title!r} is not made of a run's numbers; leave the runs out")
    if (execute or assignments or dry_run) and not table.run:
        other = f"; run 'counterfoil study {table.study}'" if table.study else ""
        raise UsageError(f"{name}: this table has no set-up to run{other}")
    table = published.with_parts(table, assignments)
    if dry_run:
        from counterfoil.metrics.tables import as_data, as_text

        lacking = published.check_parts(table)
        results.text(f"Table {table.number}: {table.title}", "", *as_text(lacking))
        results.data(as_data(lacking))
        return
    rows: list[Any] = []
    for given in paths:
        meant, _, path = ("", "", given) if Path(given).exists() else given.rpartition("=")
        rows += published.rows_of(open_run(path), table, meant)
    missing: list[str] = []
    if execute:
        from counterfoil.core.spec import PartSpec
        from counterfoil.studies.base import StudySettings
        from counterfoil.studies.runs import Runs

        nothing = PartSpec(name="")
        base = StudySettings(data=nothing, generator=nothing, oracle=nothing, **values)
        found, missing = published.run_table(table, base, Runs(base, watching=watching, counting=counting))
        rows += found
    text = list(published.print_table(table, rows))  # all of it or, for a wrong row, none
    results.text(*text, *(f"\n{line}" for line in missing))
    if table.study and not rows:
        results.text(f"\ncounterfoil study {table.study}   runs the corresponding experiment")
    results.data({"table": table.model_dump(mode="json"), "rows": [asdict(each) for each in rows], "missing": missing})
