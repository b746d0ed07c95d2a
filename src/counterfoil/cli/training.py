"""`counterfoil train-rewriter`: fine-tune a rewriter on pairs of captions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from counterfoil.cli.options import Results, Texts, prints_results, takes
from counterfoil.core.spec import PartSpec, part


def recipe(
    style: Annotated[
        str | None, typer.Option(help="How the model is asked: instruct or plain; default the base model's own.")
    ] = None,
    rank: Annotated[int, typer.Option(help="Rank of the adapter.")] = 8,
    alpha: Annotated[int, typer.Option(help="Scale of the adapter.")] = 16,
    dropout: Annotated[float, typer.Option(help="Dropout of the adapter's input.")] = 0.05,
    target_modules: Annotated[
        str, typer.Option(help="Layers that get an adapter: all-linear, or names with commas.")
    ] = "all-linear",
    epochs: Annotated[float, typer.Option(help="Times that every pair is seen.")] = 3.0,
    batch: Annotated[int, typer.Option(help="Examples per step.")] = 16,
    learning_rate: Annotated[float, typer.Option(help="Largest learning rate.")] = 3e-4,
    max_tokens: Annotated[int, typer.Option(help="Tokens of an example at most; longer ones are left out.")] = 512,
    validation_share: Annotated[float, typer.Option(help="Share of the captions kept for validation.")] = 0.05,
    seed: Annotated[int, typer.Option(help="Seed of order, dropout and first weights.")] = 0,
) -> Any:
    given = dict(locals())
    from counterfoil.parts.language import training

    return training.Recipe(**given)


@takes(recipe, last=True)
@prints_results
def train_rewriter(
    results: Results,
    settings: Any,
    pairs: Annotated[
        Path,
        typer.Argument(help="JSON Lines with caption, factor and edit, one pair per line; with --teacher captions."),
    ],
    base: Annotated[str, typer.Option(help="The language model: a folder, a hub repository, or lab:rewriter.")],
    out: Annotated[Path, typer.Option(help="Folder for the adapter; the same command resumes an interrupted training.")],
    device: Annotated[str, typer.Option(help="cpu, cuda or cuda:1.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    save_every: Annotated[int, typer.Option(help="Steps between checkpoints.", min=1)] = 100,
    teacher: Annotated[str | None, typer.Option(help="A rewriter that makes the pairs first, as in openai:gpt-4o-mini.")] = None,
    options: Annotated[Texts, typer.Option("--set", help="KEY=VALUE for any option of the teacher.")] = None,
    factor: Annotated[Texts, typer.Option(help="A factor that the teacher rewrites; all unless given.")] = None,
    words: Annotated[str, typer.Option(help="Word lists that the teacher's edits are checked by.")] = "english",
) -> None:
    """Fine-tune a LoRA adapter for a rewriter.

    Use it with --rewriter llm:BASE and the option adapter=OUT. With --teacher, pairs are made from captions first, kept where
    they pass the checks of edits, and described in OUT/pairs/card.json.

    \b
    counterfoil train-rewriter pairs.jsonl --base Qwen/Qwen2.5-0.5B --out adapter
    counterfoil train-rewriter captions.txt --teacher openai:gpt-4o-mini \\
        --base Qwen/Qwen2.5-0.5B --out adapter
    """
    from counterfoil.core.errors import BadSpec
    from counterfoil.core.progress import display
    from counterfoil.parts.language.training import train

    if dtype not in ("float32", "bfloat16"):
        raise BadSpec(f"--dtype: float32 or bfloat16, got {dtype!r}")
    if teacher is not None:
        pairs = _make_pairs(results, pairs, out, part(teacher, options), factor, words, seed=settings.seed, device=device)
    with display("training") as show:

        def watch(step: int, steps: int, loss: float) -> None:
            show("training", f"{step}/{steps}  loss {loss:.3f}", step, steps)

        done = train(
            pairs, base, out, recipe=settings, device=device, dtype=dtype,  # type: ignore[arg-type]
            save_every=save_every, watch=watch,
        )  # fmt: skip
    results.data(asdict(done))
    if done.resumed_at >= done.steps:
        results.text(f"{out}: has a finished adapter, nothing to do")
    elif done.resumed_at:
        results.text(f"resumed at step {done.resumed_at}")
    left_out = f", {done.left_out} left out as too long" if done.left_out else ""
    results.text(f"adapter  {out} ({done.steps} steps, {done.trained_on} examples{left_out})")
    if done.validation_before is not None and done.validation_after is not None:
        validation = f"on other captions {done.validation_before:.3f} before, {done.validation_after:.3f} after"
        results.text(f"loss     {done.loss:.3f}; {validation}")
    else:
        results.text(f"loss     {done.loss:.3f}; no captions were kept for validation")
    name = base if base.startswith(("lab:", "llm:")) else f"llm:{base}"
    results.text(f"use it   --rewriter {name} with the option adapter={out}")


def _make_pairs(
    results: Results, captions: Path, out: Path, teacher: PartSpec, factors: Texts, words: str, *, seed: int, device: str
) -> Path:
    """Make pairs by a teacher, and return their file."""
    from counterfoil.core.progress import display
    from counterfoil.parts import registry
    from counterfoil.parts.contracts import to_device
    from counterfoil.parts.language import pairs
    from counterfoil.parts.language.grammar import FACTORS

    asked = to_device(registry.create("rewriter", teacher.name, teacher.options), device)
    with display("pairs") as show:
        made = pairs.make_pairs(
            captions, asked, out / "pairs", name=teacher.name, factors=factors or FACTORS, words=words, seed=seed,
            watch=lambda done, total: show("pairs", f"{done}/{total} captions", done, total),
        )  # fmt: skip
    results.text(f"pairs    {made.file} ({made.pairs} of {made.proposals} proposals passed the checks)", *pairs.describe(made))
    return made.file
