"""`counterfoil run`, `check` and `demo`: make test images against a model and measure what it keeps."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from counterfoil import protocols
from counterfoil.cli import echo
from counterfoil.cli.options import Number, Results, Text, prints_results, put, resolve, specification, takes
from counterfoil.core.errors import UsageError
from counterfoil.core.spec import default_folder


@takes(specification)
@prints_results
def run(
    results: Results,
    values: dict[str, Any],
    out: Annotated[
        Path | None, typer.Option(help="Run directory; by default one under runs/ named by the specification.")
    ] = None,
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="For fmr: compile the parts; by default for long runs on a GPU.")
    ] = None,
    mask: Annotated[Text, typer.Option(help="Move only the coordinates in this file, which 'study sparse' fits.")] = None,
    stage: Annotated[Text, typer.Option(help="Stop after this stage, so that its file can be reviewed and corrected.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first unreadable image.")] = False,
    executor: Annotated[
        Text, typer.Option(help="local (the default): this process; ray: workers on one machine or many.")
    ] = None,
    workers: Annotated[Number, typer.Option(help="For ray: number of workers; by default one per GPU, or one per core.")] = None,
    ray_address: Annotated[Text, typer.Option(help="For ray: a running cluster, as in auto or HOST:6379.")] = None,
    threads: Annotated[
        Number, typer.Option(help="Threads of a process on a CPU; by default all cores, or a worker's share of them.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved specification and its cost, then stop.")] = False,
) -> None:
    """Test a model with generated images.

    Interrupt it any time; the same command resumes it.

    \b
    counterfoil run --model timm:resnet50 --data photos/ \\
        --generator autoencoder:vqgan/ --oracle clip:my-clip/
    counterfoil run --preset paper --model timm:resnet50.tv_in1k --data photos/
    counterfoil run settings.yaml --set budget=20 --dry-run
    """
    values.update({"strict": True} if strict else {})
    put(values, "engine", "compile", compiled)
    put(values, "search", "mask", mask)
    resolved, execution = resolve(values, executor=executor, workers=workers, address=ray_address, threads=threads)
    out = out or default_folder(resolved)
    if dry_run:
        return _explain(resolved, out, results)

    from counterfoil.cli.results import show
    from counterfoil.core.progress import watching

    with watching(resolved.subject) as (watch, tell):
        finished = protocols.run(resolved, out, execution=execution, watch=watch, tell=tell, stage=stage)
    if stage is not None and finished.results is None:
        results.text(file := f"{out / 'stages' / stage}.jsonl")
        return results.data({"stage": file})
    results.data(show(finished, results))
    if text := protocols.get(resolved.protocol).citation(finished, dict(finished.results or {})):
        results.text(f"\nFor a paper: {text}")
    results.text(f"\n{out}  (counterfoil report {out} makes a page of it)")


def _explain(resolved: Any, out: Path, results: Results) -> None:
    """Print the specification and its cost; a name or an option that no part has is refused here already."""
    from counterfoil.parts import registry

    data = [("data", "dataset", resolved.data)] if getattr(resolved, "data", None) else []
    for _, role, part in (*data, *resolved.parts()):
        registry.check_options(role, part.name, part.options)
    spec, protocol = resolved.model_dump(mode="json"), protocols.get(resolved.protocol)
    counts = protocol.cost(resolved, protocol.images(resolved))
    width = max(map(len, counts))
    results.text(yaml.safe_dump(spec, sort_keys=False).rstrip(), f"\n# run directory: {out}")
    results.text(*(f"# {name:<{width}}  {count:>12,}" for name, count in counts.items()))  # comments, so that the whole is a file
    results.data({"spec": spec, "folder": str(out), "cost": counts})


@prints_results
def check(
    results: Results,
    model: Annotated[str, typer.Argument(help="A checkpoint, a folder, or a name such as timm:resnet50.a1_in1k.")],
    photos: Annotated[Path, typer.Argument(help="A folder with one sub-folder of images per class.")],
    arch: Annotated[Text, typer.Option(help="Architecture of a state dictionary, as in timm:resnet18, if none is found.")] = None,
    classes: Annotated[
        Text, typer.Option(help="File with the names of the outputs, one per line; by default the folders.")
    ] = None,
    expect: Annotated[float | None, typer.Option(help="Accuracy that you know the model to have, in per cent.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Test as many photos as this time allows.", min=0.1)] = None,
    preset: Annotated[Path | None, typer.Option(help="YAML file with the generators and oracles to try.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run directory; by default one under runs/ named by the model.")] = None,
    device: Annotated[Text, typer.Option(help="cpu, cuda …; by default a GPU if there is one.")] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Fetch what is needed and begin without asking.")] = False,
) -> None:
    """Test your own model on your own photos; everything else is chosen.

    Checks clean accuracy first, then tries oracles and generators on the photos, says what it chose and how long a run takes,
    and ends with a verdict and a report. Interrupt it any time; the same command resumes the run.

    \b
    counterfoil check model.pth photos/
    counterfoil check timm:resnet50.a1_in1k photos/ --expect 80 --minutes 30 --yes
    """
    from counterfoil.cli.results import show
    from counterfoil.doctor.check import check as do

    def ask(question: str) -> bool:
        return yes or typer.confirm(question, default=True)

    done = do(
        model, photos, arch=arch, classes=classes, expect=expect, preset=preset, minutes=minutes, out=out, device=device,
        ask=ask, tell=results.text,
    )  # fmt: skip
    results.data(done.to_dict())
    if done.run is None:
        return
    results.text("", *done.verdict, "")
    show(done.run, results)
    results.text(f"\n{done.page}", *(f"next: {line}" for line in done.next))


def demo(
    protocol: Annotated[str, typer.Option(help="A protocol that has a demo, or all.")] = protocols.USUAL,
    images: Annotated[
        int | None,
        typer.Option(help="Images per protocol: tested, edited or painted; by default as many as take minutes.", min=1),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for runs and report.")] = Path("counterfoil-demo"),
) -> None:
    """Test small classifiers on the lab: no network, no GPU.

    \b
    counterfoil demo
    counterfoil demo --protocol all --images 24
    """
    demos = {entry.name: entry for entry in entry_points(group="counterfoil.demos")}
    if not demos:
        raise UsageError("demo: the lab is not installed; run: pip install 'counterfoil[lab]'")
    if protocol not in (*demos, "all"):
        raise UsageError(f"no demo for protocol {protocol!r}; there are {', '.join(demos)} and all")
    for name in demos if protocol == "all" else (protocol,):
        if protocol == "all":
            echo(f"\n{name}\n{'=' * len(name)}")
        demos[name].load().run(images, out)
