"""`counterfoil run`: make test images against a model and measure what it keeps."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from counterfoil import protocols
from counterfoil.cli.options import Number, Results, Text, prints_results, put, resolve, specification, takes
from counterfoil.core.spec import PartSpec, default_folder


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

    for role, part in _parts(resolved, registry.ROLES):
        registry.check_options(role, part.name, part.options)
    spec, protocol = resolved.model_dump(mode="json"), protocols.get(resolved.protocol)
    counts = protocol.cost(resolved, protocol.images(resolved))
    width = max(map(len, counts))
    results.text(yaml.safe_dump(spec, sort_keys=False).rstrip(), f"\n# run directory: {out}")
    results.text(*(f"# {name:<{width}}  {count:>12,}" for name, count in counts.items()))  # comments, so that the whole is a file
    results.data({"spec": spec, "folder": str(out), "cost": counts})


def _parts(resolved: Any, roles: Sequence[str]) -> Iterator[tuple[str, PartSpec]]:
    """Yield the parts of a specification with their roles, by the names of its keys."""
    for key in type(resolved).model_fields:
        value = getattr(resolved, key)
        role = {"data": "dataset", "others": "model", "surrogates": "model"}.get(key, key.removesuffix("s"))
        for part in value if isinstance(value, tuple) else (value,):
            if isinstance(part, PartSpec) and role in roles:
                yield role, part
