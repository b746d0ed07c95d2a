"""`counterfoil run`: make test images against a model and measure what it keeps."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from counterfoil import protocols
from counterfoil.cli.output import echo
from counterfoil.core import spec as specs
from counterfoil.core.naming import default_folder
from counterfoil.parts.fast import dtypes
from counterfoil.protocols.ray.execution import Execution

Text = str | None
Number = int | None


def run(
    file: Annotated[Path | None, typer.Argument(help="A specification in YAML; options below override it.")] = None,
    protocol: Annotated[Text, typer.Option(help=f"{', '.join(protocols.names())}; the default is {protocols.USUAL}.")] = None,
    preset: Annotated[Text, typer.Option(help="Defaults of lance (paper, released) or imagenet-d (fair, paper).")] = None,
    model: Annotated[Text, typer.Option(help="The classifier under test, as in timm:resnet50.")] = None,
    data: Annotated[Text, typer.Option(help="Labelled images: a folder with one sub-folder a class, or kind:rest.")] = None,
    generator: Annotated[Text, typer.Option(help="What makes the pictures, as in autoencoder:PATH.")] = None,
    oracle: Annotated[Text, typer.Option(help="What says whether the class is still there, as in clip:PATH.")] = None,
    captioner: Annotated[Text, typer.Option(help="For lance: what describes the images, as in blip:PATH.")] = None,
    rewriter: Annotated[Text, typer.Option(help="For lance: what rewrites captions, as in lexicon: or llm:PATH.")] = None,
    editor: Annotated[Text, typer.Option(help="For lance: what edits images to fit a caption, as in p2p:PATH.")] = None,
    encoder: Annotated[Text, typer.Option(help="For lance: what compares images with words, as in clip:PATH.")] = None,
    painter: Annotated[Text, typer.Option(help="For imagenet-d: what paints images from words, as in diffusers:PATH.")] = None,
    size: Annotated[
        Number, typer.Option(help="Side of the pictures in pixels, where neither generator nor model says it.")
    ] = None,
    limit: Annotated[Number, typer.Option(help="Images at most, taken evenly over the classes.")] = None,
    seed: Annotated[Number, typer.Option(help="Seed of the run.")] = None,
    device: Annotated[Text, typer.Option(help="cpu, cuda, cuda:1 …")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; by default one under runs/ named by the specification.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            help="KEY=VALUE for any key that --dry-run prints, as in budget=10, or option of a part, as in model.weights=FILE.",
        ),
    ] = None,
    precision: Annotated[
        Text, typer.Option(help="For fmr: float32 (the default on a CPU) or bf16 (the default on a GPU that has it).")
    ] = None,
    compiled: Annotated[
        bool | None, typer.Option("--compile/--no-compile", help="For fmr: compile the parts; by default for long runs on a GPU.")
    ] = None,
    mask: Annotated[Text, typer.Option(help="Move only the coordinates in this file, which 'study sparse' fits.")] = None,
    stage: Annotated[Text, typer.Option(help="Stop after this stage, so that its file can be reviewed and corrected.")] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Stop at the first unreadable picture.")] = False,
    executor: Annotated[
        Text, typer.Option(help="local (the default): this process; ray: workers on one machine or many.")
    ] = None,
    workers: Annotated[Number, typer.Option(help="For ray: how many; by default one a GPU, or one a core.")] = None,
    ray_address: Annotated[Text, typer.Option(help="For ray: a cluster that is there, as in auto or HOST:6379.")] = None,
    threads: Annotated[
        Number, typer.Option(help="Threads of a process on a processor; by default all cores, or a worker's share of them.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved specification and its cost, then stop.")] = False,
) -> None:
    """Test a model with generated images.

    Interrupt it any time; the same command resumes it.

    \b
    counterfoil run --model timm:resnet50 --data photos/ \\
        --generator autoencoder:vqgan/ --oracle clip:my-clip/
    counterfoil run settings.yaml --set budget=20 --dry-run
    """
    values = read(file)
    given = {
        "protocol": protocol, "preset": preset, "model": model, "data": data, "generator": generator, "oracle": oracle,
        "captioner": captioner, "rewriter": rewriter, "editor": editor, "encoder": encoder, "painter": painter,
        "size": size, "limit": limit, "seed": seed, "device": device, "strict": strict or None,
    }  # fmt: skip
    values.update({key: value for key, value in given.items() if value is not None})
    for assignment in settings or []:
        protocols.override(values, assignment)
    for key, value in (("precision", precision), ("compile", compiled)):
        if value is not None:
            _put(values, "engine", key, value)
    if mask is not None:
        _put(values, "search", "mask", mask)
    resolved, execution = resolve(values, executor=executor, workers=workers, address=ray_address, threads=threads)
    out = out or default_folder(resolved)
    if dry_run:
        return _explain(resolved, out)

    from counterfoil.cli.results import show
    from counterfoil.core.progress import watching

    with watching(resolved.subject) as (watch, tell):
        finished = protocols.run(resolved, out, execution=execution, watch=watch, tell=tell, stage=stage)
    if stage is not None and finished.results is None:
        return echo(f"{out / 'stages' / stage}.jsonl")
    show(finished)
    echo(f"\n{out}  (counterfoil report {out} makes a page of it)")


def read(file: Path | None) -> dict[str, Any]:
    """The values of a specification's file, if one is named; a section with nothing in it has no settings."""
    values = specs.read(file) if file else {}
    sections = {name for each in protocols.names() for name in specs.sections(protocols.get(each).spec)}
    return {key: {} if value is None and key in sections else value for key, value in values.items()}


def resolve(values: dict[str, Any], **asked: Any) -> tuple[Any, Execution]:
    """The specification that values come to, and where its work is to be done: by their `execution`, and what is `asked`."""
    execution = Execution.of(values.get("execution"), **asked)
    return protocols.parse(
        dtypes.with_supported_precision({key: value for key, value in values.items() if key != "execution"})
    ), execution


def _put(values: dict[str, Any], section: str, key: str, value: Any) -> None:
    settings = values.setdefault(section, {})
    if isinstance(settings, dict):  # anything else is refused when the whole is read
        settings[key] = value


def _explain(resolved: Any, out: Path) -> None:
    echo(yaml.safe_dump(resolved.model_dump(mode="json"), sort_keys=False).rstrip())
    protocol = protocols.get(resolved.protocol)
    counts = protocol.cost(resolved, protocol.images(resolved))
    width = max(map(len, counts))
    echo(f"\n# run directory: {out}")
    for name, count in counts.items():
        echo(f"# {name:<{width}}  {count:>12,}")  # a comment, so that the whole can be kept as a file and run
