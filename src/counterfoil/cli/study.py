"""`counterfoil study NAME`: experiments on the instrument itself, one command each, and all of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from counterfoil import protocols
from counterfoil.cli import paper
from counterfoil.cli.output import echo
from counterfoil.core.errors import UsageError
from counterfoil.studies import NAMES

Text = str | None
Number = int | None
Texts = list[str] | None

Models = Annotated[Texts, typer.Option("--model", help="A model to study; may be repeated. By default the lab's.")]
Data = Annotated[Text, typer.Option(help="Labelled images, as for counterfoil run.")]
Generator = Annotated[Text, typer.Option(help="What makes the pictures.")]
Oracle = Annotated[Text, typer.Option(help="What says whether the class is still there.")]
Size = Annotated[Number, typer.Option(help="Side of the pictures in pixels, where neither generator nor model says it.", min=8)]
Images = Annotated[Number, typer.Option(help="Source images at most.", min=1)]
Seed = Annotated[int, typer.Option(help="Seed of the runs.", min=0)]
Device = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 …")]
Out = Annotated[Path, typer.Option("-o", "--out", help="Folder for the findings and the runs.")]
Settings = Annotated[Texts, typer.Option("--set", help="KEY=VALUE for an option of the study or of the search.")]


def _command(name: str) -> Callable[..., None]:
    def study(
        model: Models = None, data: Data = None, generator: Generator = None, oracle: Oracle = None, size: Size = None,
        images: Images = None, seed: Seed = 0, device: Device = "cpu", out: Out = Path("studies"), settings: Settings = None,
    ) -> None:  # fmt: skip
        base = _settings(
            name, model, {"data": data, "generator": generator, "oracle": oracle},
            size=size, images=images, seed=seed, device=device, out=out, assignments=settings or [],
        )  # fmt: skip
        missing = _alone(name, base).failed
        for claim in missing:
            echo(f"not shown  {claim}")
        _finish(out, shown=not missing)

    return study


def every(
    seed: Seed = 0,
    device: Device = "cpu",
    out: Out = Path("studies"),
    images: Images = None,
    only: Annotated[Texts, typer.Option("--only", help="A study to run; may be repeated. By default all.")] = None,
) -> None:
    """Run all studies on the lab, sharing their runs, and say whether what must hold there does."""
    unknown = [name for name in only or [] if name not in NAMES]
    if unknown:
        raise UsageError(f"--only {unknown[0]}: no such study; there are {', '.join(NAMES)}")
    base = _settings("all", None, {}, size=None, images=images, seed=seed, device=device, out=out, assignments=[])
    missing = _together([name for name in NAMES if not only or name in only], base)
    if missing:
        echo(f"not shown: {missing} of what has to hold, see the table")
    _finish(out, shown=not missing)


def _settings(
    name: str, models: Texts, parts: dict[str, Text], *,
    size: Number, images: Number, seed: int, device: str, out: Path, assignments: list[str],
) -> Any:  # fmt: skip
    from counterfoil import studies
    from counterfoil.core import spec as specs
    from counterfoil.studies.bench import LAB
    from counterfoil.studies.bench import Settings as Decided

    own = studies.load(name).options if name != "all" else {}
    values: dict[str, Any] = {role: {"name": part.name, **part.options} for role, part in LAB.items()}
    values.update({role: {"name": given} for role, given in parts.items() if given is not None})
    chosen: dict[str, Any] = {}
    for assignment in assignments:
        key = assignment.partition("=")[0].strip()
        if key in own:
            chosen |= specs.part("", [assignment]).options
        else:
            protocols.override(values, assignment)
            if values.keys() - {*LAB, "search"}:
                takes = f"keys of the search, options of {', '.join(LAB)}, and its own: {', '.join(own) or 'none'}"
                raise UsageError(f"--set {key}: not for a study, which takes {takes}")
    spec = protocols.parse({"model": "lab:narrow", **values, "seed": seed, "device": device, "limit": images})
    return Decided(
        folder=out, models=tuple(specs.part(each) for each in models or ()), data=spec.data, generator=spec.generator,
        oracle=spec.oracle, size=size, images=images, seed=seed, device=device, search=values.get("search", {}), options=chosen,
    )  # fmt: skip


def _alone(name: str, base: Any) -> Any:
    from counterfoil.core.progress import counting, watching
    from counterfoil.studies import runner
    from counterfoil.studies.bench import Bench

    report = runner.run(name, base, Bench(base, watching=watching, counting=counting))
    _show(report)
    return report


def _together(names: list[str], base: Any) -> int:
    """Run them, print each as it is done and then the table of all; how much was not shown."""
    from counterfoil.core.progress import counting, watching
    from counterfoil.studies import runner, summary
    from counterfoil.studies.bench import Bench

    began = time.monotonic()
    outcomes: dict[str, Any] = {}
    for outcome in runner.run_all(names, base, Bench(base, watching=watching, counting=counting)):
        outcomes[outcome.name] = outcome
        _show(outcome)
    lines = summary.summary(outcomes, list(NAMES))
    for line in summary.as_text(lines):
        echo(line)
    runner.write(base.folder / "all.json", {"seed": base.seed, "studies": summary.as_data(lines)})
    worked = sum(getattr(each, "cpu_seconds", 0) for each in outcomes.values())
    minutes = (time.monotonic() - began) / 60
    echo(f"\n{len(outcomes)} studies, {minutes:.1f} minutes, {worked / 60:.1f} minutes of CPU time")
    return sum(not each.good for each in lines)


def _show(outcome: Any) -> None:
    for line in outcome.lines():
        echo(line)
    echo("")


def _finish(out: Path, *, shown: bool) -> None:
    """The last line, and the exit code: 1 if something that must hold on the lab was not shown to."""
    echo(f"{out}  (findings as JSON, and the runs)")
    raise typer.Exit(0 if shown else 1)


app = typer.Typer(
    help="Run experiments on the instrument itself.\n\nPrint published figures to hold against.\n\n"
    "\b\ncounterfoil study transfer --images 60\ncounterfoil study paper --table 6",
    no_args_is_help=True,
    rich_markup_mode=None,
    add_completion=False,
)
app.command("paper", short_help="Print a table of the FMR paper, with runs beside the published rows.")(paper.paper)
for _name, _shows in NAMES.items():
    _says = f"{_shows[0].upper()}{_shows[1:]}."
    app.command(_name, help=_says, short_help=_says)(_command(_name))  # given as short, it is listed whole
app.command("all", short_help="Run all studies on the lab and say whether what must hold there does.")(every)
