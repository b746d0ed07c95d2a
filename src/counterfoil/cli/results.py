"""Commands over finished runs: score and judge their images, report, export, board, and the list of parts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from counterfoil import protocols
from counterfoil.cli import echo
from counterfoil.cli.options import Device, ManyRuns, OneRun, PartSettings, Results, Text, output, prints_results, takes
from counterfoil.core.errors import BadPart, UsageError
from counterfoil.core.spec import part
from counterfoil.store import Run, open_run
from counterfoil.store.later import Role

As = Annotated[Text, typer.Option("--as", help="Name its answers are kept under; by default its own.")]
Again = Annotated[bool, typer.Option("--again", help="Ask about images that it has answered before, too.")]


def asking(
    run: OneRun, settings: PartSettings = None, name: As = None, device: Device = "cpu", again: Again = False
) -> Callable[[Results, Role, str], None]:
    """Common options of `score` and `judge`, which ask a part about a stored run."""

    def ask(results: Results, role: Role, given: str) -> None:
        from counterfoil.core.progress import counting
        from counterfoil.protocols import rescoring

        stored = open_run(run)
        with counting(given, rescoring.pictures_of(stored)) as watch:
            ask_part = rescoring.score if role == "model" else rescoring.judge
            ask_part(stored, part(given, settings), name=name, device=device, again=again, watch=watch, tell=_tell)
        results.data(show(stored, results, **{role: name or given}))

    return ask


@takes(asking, last=True)
@prints_results
def score(
    results: Results,
    ask: Any,
    model: Annotated[str, typer.Option(help="The model to query, as in timm:resnet50.")],
) -> None:
    """Ask another model about a run's images.

    Interrupt it any time; the same command resumes it.

    \b
    counterfoil score runs/fmr-resnet50 --model timm:convnext_base
    """
    ask(results, "model", model)


@takes(asking, last=True)
@prints_results
def judge(
    results: Results,
    ask: Any,
    oracle: Annotated[str, typer.Option(help="The oracle to query, as in clip:PATH.")],
) -> None:
    """Ask another oracle about a run's images.

    The numbers are computed again with its verdicts. Interrupt it any time; the same command resumes it.

    \b
    counterfoil judge runs/fmr-resnet50 --oracle clip:other-clip/
    """
    ask(results, "oracle", oracle)


@prints_results
def report(
    results: Results,
    runs: ManyRuns,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder for the page; by default report/ in the first run.")
    ] = None,
    images: Annotated[int, typer.Option(help="Images per run in the gallery.", min=0)] = 1000,
    slices: Annotated[Path | None, typer.Option(metavar="FILE", help="A CSV with image_id and slices of your own.")] = None,
    to: Annotated[Text, typer.Option(help="Send the results to a tracker instead: tensorboard, mlflow or wandb.")] = None,
    where: Annotated[
        Text, typer.Option(help="Folder (TensorBoard), tracking address (MLflow) or project (Weights & Biases).")
    ] = None,
) -> None:
    """Write a page of one run, or of several side by side.

    It opens from disk.

    \b
    counterfoil report runs/fmr-resnet50
    counterfoil report runs/fmr-* -o page
    counterfoil report runs/fmr-resnet50 --to mlflow
    """
    if where is not None and to is None:
        raise UsageError("--where: names a tracker's folder, address or project; give the tracker by --to")
    if slices is not None and to is not None:
        raise UsageError("--slices: for a page; leave it out where results go to a tracker")
    opened = [open_run(path) for path in runs]
    if to is not None:
        from counterfoil.report.trackers import log

        logged = [{"run": str(run.path), "logged to": log(run, to, where)} for run in opened]
        results.text(*(f"{each['run']}: logged to {each['logged to']}" for each in logged))
        return results.data(logged)
    from counterfoil.protocols.reading import write_report

    page = write_report(opened, out or runs[0] / "report", images=images, slices=slices)
    results.text(page)
    results.data({"page": str(page)})


@prints_results
def export(
    results: Results,
    run: OneRun,
    layout: Annotated[
        str, typer.Option("--format", help="folder, webdataset, datasets (Hugging Face), or result: a line for a board.")
    ] = "folder",
    out: Annotated[Path | None, typer.Option("-o", "--out", help="By default named after run and format.")] = None,
    name: Annotated[Text, typer.Option(help="Name of the set; by default that of its folder.")] = None,
    licence: Annotated[Text, typer.Option("--licence", "--license", help="Licence of the images, as in cc-by-4.0.")] = None,
    note: Annotated[str, typer.Option(help="A paragraph for the datasheet, or a line for readers of the board.")] = "",
    croissant: Annotated[bool, typer.Option("--croissant", help="Also write Croissant metadata, for a set in folders.")] = False,
    model: Annotated[Text, typer.Option(help="For a result: the model, if the run tests several.")] = None,
    submitter: Annotated[str, typer.Option(help="For a result: who submits it.")] = "",
    page: Annotated[str, typer.Option("--report", help="For a result: https:// address of the run's report.")] = "",
) -> None:
    """Export a run's accepted images as a dataset.

    With a datasheet, provenance and checksums.

    \b
    counterfoil export runs/fmr-resnet50 --format webdataset
    counterfoil export runs/fmr-resnet50 --format result
    """
    if layout == "result":
        file = out or Path(f"{run.resolve().name}-result.json")
        write_result = output(file, "--out")  # refused before anything is read
        write_result(_result(open_run(run), model, submitter, note, page))
        results.text(file)
        return results.data({"result": str(file)})
    if model or submitter or page:
        raise UsageError("--model, --submitter and --report go with --format result")

    from counterfoil.core.progress import counting
    from counterfoil.report.export import export as write

    opened = open_run(run)
    out = out or Path(f"{run.resolve().name}-{layout}")
    with counting("export") as watch:
        told = write(opened, out, layout=layout, name=name, licence=licence, note=note, croissant=croissant, watch=watch)
    begun = "; the run is not finished: repeat its command to make more" if opened.results is None else ""
    results.text(f"{out}: {told.size} images of {len(told.classes)} classes{begun}")
    results.data({"folder": str(out), **told.content})


def _result(run: Run, model: Text, submitter: str, comment: str, page: str) -> bytes:
    """Return a run's result as the JSON that a board takes."""
    from counterfoil.core import spec as specs
    from counterfoil.protocols.reading import result_files
    from counterfoil.report.result_file import ResultFile
    from counterfoil.store.files import canonical

    entries = result_files(run)
    names = [entry.model.name for entry in entries]
    wanted = [entry for entry in entries if model in (None, entry.model.name)]
    if len(wanted) != 1:
        problem = f"has no result of {model!r}; give --model as" if model else "tests several models; choose one by --model"
        raise UsageError(f"{run.path}: {problem}: {', '.join(names)}")
    told = {"submitter": submitter, "comment": comment, "report": page}
    entry = specs.parse({**wanted[0].model_dump(mode="json"), **told}, ResultFile)
    return canonical(entry.model_dump(mode="json"))


@prints_results
def list_parts(
    results: Results,
    role: Annotated[str, typer.Argument(help="models, generators, presets, protocols …; all if left out")] = "",
) -> None:
    """List the parts and protocols that can be named.

    \b
    counterfoil list
    counterfoil list models
    """
    from counterfoil.parts import registry

    named = "dataset" if role == "data" else role.removesuffix("s")
    roles = [named] if named not in ("", "protocol", "preset") else list(registry.ROLES) if not named else []
    rows = [(each, f"{one.kind}:", one.package, one.summary) for each in roles for one in registry.list_parts(each)]
    packages = {name: entry.dist.name if entry.dist else "" for name, entry in protocols.entries().items()}
    if named in ("", "protocol"):
        rows += [("protocol", name, packages[name], _title(name)) for name in protocols.names()]
    if named == "preset":
        rows = [
            ("preset", f"{each}: {name}", packages[each], ". ".join(told[key] for key in ("about", "needs") if key in told))
            for each, protocol in protocols.working().items()
            for name, told in protocol.spec.presets().items()
        ]
    results.data([dict(zip(("role", "name", "package", "summary"), row, strict=True)) for row in rows])
    shown = ((each, name, what if package == "counterfoil" else f"{what} (from {package})") for each, name, package, what in rows)
    results.table(("role", "name", "what it is"), shown)


def _title(protocol: str) -> str:
    """One line about a protocol, or the reason it can't be used."""
    try:
        return protocols.get(protocol).title
    except BadPart as error:
        return f"broken: {error}"


def _tell(line: str) -> None:
    echo(f"counterfoil: {line}", err=True)


def show(run: Run, to: Results | None = None, *, model: Text = None, oracle: Text = None) -> dict[str, Any]:
    """Print a run's numbers with their intervals, and what to know before believing them; the same for JSON."""
    from counterfoil.protocols.reading import results_of

    to, results = to or Results(), results_of(run, model=model, oracle=oracle)
    protocol, counts = protocols.of(run), results["counts"]
    skipped = f", {counts['skipped']} unreadable and skipped" if counts["skipped"] else ""
    judge = results["oracle"]["name"]
    names = results["model"]["name"] + (f", oracle {judge}" if judge != "none" else "")
    to.text(f"{names}: {protocol.extent(counts)}{skipped}", protocol.text(results))
    cautions = protocol.cautions(run, results, model=model)
    for at, caution in enumerate(cautions):
        to.text(f"{'' if at else chr(10)}{'take care' if caution.kind == 'care' else 'note'}: {caution.text}")
    told = [{"kind": each.kind, "text": each.text} for each in cautions]
    return {"run": str(run.path), "results": results, "cautions": told}


@prints_results
def board(
    results: Results,
    sources: Annotated[list[Path], typer.Argument(metavar="RUN|RESULT.json...", help="Run directories and result files.")],
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder for the site.")] = None,
    scored: Annotated[
        bool, typer.Option("--scored", help="Rank all models scored on each run's images, as on a fixed set.")
    ] = False,
    images: Annotated[int, typer.Option(help="Images in each run's report; 0 for no reports.", min=0)] = 60,
    title: Annotated[str, typer.Option(help="Title of the page.")] = "Leaderboard",
    check: Annotated[
        bool, typer.Option("--check", help="Only check result files: their schema, and that numbers follow from answers.")
    ] = False,
) -> None:
    """Build a leaderboard from runs and results.

    Results of others are checked and listed next to your own; 'export --format result' writes one.

    \b
    counterfoil board runs/fmr-* -o site
    counterfoil board --check submitted.json
    """
    if check:
        return _check_files(sources, results)
    if out is None:
        raise UsageError("board: give the folder for the site by -o, or --check to check result files only")
    from counterfoil.protocols.reading import write_board

    page = write_board(sources, out, scored=scored, images=images, title=title)
    results.text(page)
    results.data({"page": str(page)})


def _check_files(files: list[Path], results: Results) -> None:
    from counterfoil.metrics.tables import estimate_text
    from counterfoil.report.result_file import read

    checked: list[dict[str, Any]] = []
    for path in files:
        try:
            entry = read(path)
        except UsageError as error:
            echo(f"counterfoil: {error}", err=True)
            checked.append({"file": str(path), "fits": False, "problem": str(error)})
        else:
            first = entry.ranked[0]
            found = entry.measures[first].found.estimate
            results.text(f"{path}: fits; {entry.model.name}, {len(entry.keys)} {entry.row}s, {first} {estimate_text(found)}")
            told = {"model": entry.model.name, "rows": len(entry.keys), "measure": first, "estimate": found.to_dict()}
            checked.append({"file": str(path), "fits": True, **told})
    results.data(checked)
    if not all(each["fits"] for each in checked):
        raise typer.Exit(1)
