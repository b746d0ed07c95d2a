"""`counterfoil doctor`: check a set-up before it is run, or time it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from counterfoil import protocols
from counterfoil.cli import echo
from counterfoil.cli.options import Number, Results, prints_results, resolve, specification, takes
from counterfoil.core.errors import UsageError

if TYPE_CHECKING:
    from counterfoil.doctor import Diagnosis, Finding, Section
    from counterfoil.doctor.timing import Timing

OF_THE_LAB = 50_000  # as many as ImageNet has for validation; the lab itself has as many as one likes
WIDTH = 32  # of the names of what is measured


@takes(specification)
@prints_results
def doctor(
    results: Results,
    values: dict[str, Any],
    ctx: typer.Context,
    images: Annotated[Number, typer.Option(help="Images to examine (96) or to time (as many as needed).", min=1)] = None,
    time: Annotated[bool, typer.Option("--time", help="Time a few images part by part instead, and predict a run.")] = False,
    predict: Annotated[
        Number, typer.Option(help="With --time: images of the run to predict; by default those of the data.", min=1)
    ] = None,
) -> None:
    """Check a set-up for common mistakes before a run.

    Looks at labels, accuracy, inputs, gradients, reconstruction and cost. Exit code 1 if it suspects a mistake. With --time
    parts that are not named are those of the demos.

    \b
    counterfoil doctor --model timm:resnet50 --data photos/ \\
        --generator autoencoder:vqgan/ --oracle clip:my-clip/
    counterfoil doctor settings.yaml --time --predict 50000
    """
    if predict is not None and not time:
        raise UsageError("--predict: predicts the time of a run and needs --time; add it")
    if not time:
        spec, execution = resolve(values)
        found = list(_examine(spec, execution, images, results))
        results.data([each.to_dict() for each in found])
        if not all(each.healthy for each in found):
            raise typer.Exit(1)
        return
    several = [values] if ctx.params["file"] else _with_demos(values)
    resolved = [resolve(each) for each in several]
    results.data([asdict(each) for each in _time(resolved, images, predict, results, of_the_lab="data" not in values)])


def _with_demos(values: dict[str, Any]) -> list[dict[str, Any]]:
    """The values of the demos of all protocols, or of the one that options name parts of, with these in their place."""
    there = {each.name for each in entry_points(group="counterfoil.demos")}
    named = values.get("protocol") or (protocols.USUAL if values.keys() & {"model", "data", "generator", "oracle"} else None)
    return [{**demo(name), **values} for name in ([named] if named else [each for each in protocols.names() if each in there])]


def demo(protocol: str) -> dict[str, Any]:
    """The values of the run that a protocol's demo does."""
    demos = entry_points(group="counterfoil.demos", name=protocol)
    if not demos:
        raise UsageError(f"no demo of protocol {protocol!r} to time; name a specification, or pip install 'counterfoil[lab]'")
    values: dict[str, Any] = next(iter(demos)).load().values()
    return values


def _examine(spec: Any, execution: Any, images: int | None, results: Results) -> Iterator[Diagnosis]:
    """Examine each model of a specification and print what is found as it is found."""
    from counterfoil.doctor import IMAGES, examine, set_ups

    def tell(found: Section | Finding) -> None:
        for line in _lines_of(found):
            results.text(line)

    with execution.computing(), _watching() as watch:
        watch("loading")
        setups = set_ups(spec)
        for setup in setups:
            if len(setups) > 1:
                results.text(f"== {setup.name}\n")
            found = examine(setup, images=images or IMAGES, watch=watch, tell=tell)
            results.text("No mistake found." if found.healthy else "The set-up is probably wrong; see what is suspected above.")
            yield found


def _lines_of(found: Section | Finding) -> list[str]:
    """A section or a finding, for people."""
    from counterfoil.doctor import Section

    if isinstance(found, Section):
        return [found.title, *(f"  {name:<{WIDTH}} {value}" for name, value in found.rows.items()), ""]
    mark = "SUSPECTED" if found.severity == "mistake" else "note"
    return [f"{mark}: {found.mistake}: {found.says}", f"  evidence: {found.evidence}", f"  try: {found.remedy}", ""]


@contextmanager
def _watching() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows what is being done: in place on a terminal, once a line elsewhere."""
    console = Console(stderr=True)
    if console.is_terminal:
        with console.status("") as status:
            yield status.update
        return
    shown = ""

    def watch(doing: str) -> None:
        nonlocal shown
        step = doing.partition(",")[0]  # without a count
        if step != shown:
            shown = step
            echo(f"{step} …", err=True)

    yield watch


def _time(
    resolved: list[tuple[Any, Any]], images: int | None, predict: int | None, results: Results, *, of_the_lab: bool
) -> Iterator[Timing]:
    """Time each specification and print its lines."""
    from counterfoil.doctor.timing import time_protocol

    for spec, execution in resolved:
        with execution.computing(), _watching() as watch:
            watch(f"timing {spec.protocol}")
            found = time_protocol(spec, images)
        if execution.executor != "local":
            results.text(f"{spec.protocol}: timed in this process alone, not by the workers of {execution.executor}")
        for line in lines(found, predict or (OF_THE_LAB if of_the_lab else protocols.get(spec.protocol).images(spec))):
            results.text(line)
        yield found


def lines(found: Timing, predict: int) -> list[str]:
    """Lines for people about what was timed."""
    from counterfoil.doctor.timing import duration

    speed = f"{found.protocol}: {1 / found.seconds:.3g} images per second ({found.images} timed)"
    text = [f"{speed}; a run of {predict:,} images takes {duration(found.predict(predict))}"]
    counted = [f"{name} {duration(seconds)}" for name, seconds in found.once.items()]
    counted += [f"{found.around * 1e3:.1f} ms per image around it"] if found.around else []
    text.append(f"  counted with it: {', '.join(counted)}")
    if found.images < found.slots:
        text.append(f"  fewer than its {found.slots} slots, so some were idle: a longer run takes less per image")
    width = max(len(share.name) for share in found.shares)
    text += [f"  {share.name:<{width}}  {share.times:6.1f} per image  {share.seconds * 1e3:9.1f} ms" for share in found.shares]
    return [*text, ""]
