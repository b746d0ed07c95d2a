"""Fine-tunes a rewriter: a LoRA adapter (Hu et al., 2021) on pairs of captions, with peft.

Every step's examples and dropout come from the seed and the step's number alone, and a checkpoint holds the adapter and the
optimiser, so that training that was killed goes on with the same command and, on a CPU, ends with the same weights.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from counterfoil.core.errors import BadSpec, RunFailed, one_line
from counterfoil.parts import weights
from counterfoil.parts.language import checkpoints, pairs
from counterfoil.parts.language.examples import HIDDEN, Example, examples
from counterfoil.parts.language.generation import seed_of
from counterfoil.parts.language.llm import load
from counterfoil.parts.language.prompting import style as find_style
from counterfoil.parts.pretrained import DTYPES


@dataclass(frozen=True)
class Recipe:
    """How an adapter is trained. Rank, alpha and dropout are the paper's."""

    style: str = "instruct"
    rank: int = 8
    alpha: int = 16
    dropout: float = 0.05
    targets: str = "all-linear"  # or names of layers, with commas
    epochs: float = 3.0
    batch: int = 16
    learning_rate: float = 3e-4
    warmup: float = 0.05  # share of the steps
    largest_gradient: float = 1.0
    most_tokens: int = 512  # of an example; longer ones are left out
    held_out: float = 0.05  # share of the captions that the adapter is tried on
    seed: int = 0

    def __post_init__(self) -> None:
        whole = {"rank": self.rank, "alpha": self.alpha, "batch": self.batch, "most_tokens": self.most_tokens}
        for name, value in whole.items():
            if value < 1:
                raise BadSpec(f"train-rewriter: {name} is at least 1, got {value}")
        shares = {"dropout": self.dropout, "warmup": self.warmup, "held_out": self.held_out}
        for name, share in shares.items():
            if not 0 <= share < 1:
                raise BadSpec(f"train-rewriter: {name} is a share from 0 to below 1, got {share}")
        if self.epochs <= 0 or self.learning_rate <= 0:
            raise BadSpec(f"train-rewriter: epochs and learning_rate are above 0, got {self.epochs} and {self.learning_rate}")


@dataclass(frozen=True)
class Step:
    """How far training is."""

    number: int
    total: int
    loss: float


@dataclass(frozen=True)
class Trained:
    """What training came to."""

    folder: Path
    steps: int
    resumed_at: int  # 0 unless an earlier start had begun
    trained_on: int  # examples
    left_out: int  # pairs that were too long
    loss: float  # mean over the last steps
    held_out_before: float | None
    held_out_after: float | None


Watch = Callable[[Step], None]


def train(
    file: Path,
    base: str,
    out: Path,
    *,
    recipe: Recipe | None = None,
    device: str = "cpu",
    dtype: Literal["float32", "bfloat16"] = "float32",
    save_every: int = 100,
    watch: Watch = lambda step: None,
) -> Trained:
    """Train an adapter for `base` on the pairs in `file` into the folder `out`, or go on where it was interrupted."""
    recipe = recipe or Recipe()
    given = pairs.read(file)
    to_learn, to_try = pairs.held_out(given, recipe.held_out)
    if not to_learn:
        raise BadSpec(f"{file}: all pairs are held out; lower --held-out, or give more captions")
    begun = {"base": base, "recipe": asdict(recipe), "pairs": pairs.digest(given), "dtype": dtype}
    with checkpoints.Folder(out, begun) as folder:
        done = folder.finished()
        if done is not None:
            return _again(done, out)
        session, tried, left_out = _prepared(base, recipe, to_learn, to_try, device=device, dtype=dtype)
        return session.run(folder, tried, save_every=save_every, watch=watch, left_out=left_out)


def _prepared(
    base: str, recipe: Recipe, to_learn: Sequence[pairs.Pair], to_try: Sequence[pairs.Pair], *, device: str, dtype: str
) -> tuple[_Session, list[Example], int]:
    """The model with a fresh adapter and its examples, those to try it on, and how many pairs were too long."""
    model, tokenizer, _ = load(_place(base), dtype=DTYPES[dtype])
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    style = find_style(recipe.style)
    room = min(recipe.most_tokens, int(getattr(model.config, "max_position_embeddings", 0) or recipe.most_tokens))
    learned = examples(to_learn, style, tokenizer, room)
    tried = examples(to_try, style, tokenizer, room) if to_try else []
    tuned = _with_adapter(model, recipe).to(device)
    left_out = 0 if style.numbered else len(to_learn) - len(learned)
    return _Session(tuned, tokenizer.pad_token_id, recipe, learned, device), tried, left_out


def _again(note: dict[str, Any], out: Path) -> Trained:
    """What an earlier start came to."""
    losses = note["losses"]
    return Trained(
        folder=out,
        steps=note["steps"],
        resumed_at=note["steps"],
        trained_on=0,
        left_out=0,
        loss=_mean_of_last(losses),
        held_out_before=note["held_out_before"],
        held_out_after=note["held_out_after"],
    )


def _mean_of_last(losses: Sequence[float]) -> float:
    last = losses[-20:]
    return sum(last) / len(last) if last else float("nan")


class _Session:
    """A model under training."""

    def __init__(self, model: Any, pad: int, recipe: Recipe, learned: Sequence[Example], device: str) -> None:
        self.model, self.pad, self.recipe, self.learned, self.device = model, pad, recipe, learned, device
        self.named = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.optimiser = torch.optim.AdamW(self.named.values(), lr=recipe.learning_rate, weight_decay=0.0)
        self.total = max(1, round(recipe.epochs * len(learned) / recipe.batch))
        self._epoch, self._order = -1, [0]

    def run(
        self, folder: checkpoints.Folder, tried: Sequence[Example], *, save_every: int, watch: Watch, left_out: int
    ) -> Trained:
        """Take every step that is left, write the adapter, and say what came of it."""
        progress = folder.resume(self.named, self.optimiser)
        resumed_at = progress.step
        if progress.held_out_before is None and tried:
            progress.held_out_before = self._loss_of(tried)
        while progress.step < self.total:
            loss = self._step(progress.step)
            progress.step += 1
            progress.losses.append(loss)
            watch(Step(progress.step, self.total, loss))
            if progress.step % save_every == 0 and progress.step < self.total:
                folder.save(self.named, self.optimiser, progress)
        after = self._loss_of(tried) if tried else None
        folder.finish(self.model, progress, style=self.recipe.style, held_out_after=after)
        return Trained(
            folder=folder.path,
            steps=self.total,
            resumed_at=resumed_at,
            trained_on=len(self.learned),
            left_out=left_out,
            loss=_mean_of_last(progress.losses),
            held_out_before=progress.held_out_before,
            held_out_after=after,
        )

    def _step(self, number: int) -> float:
        torch.manual_seed(seed_of(self.recipe.seed, "dropout", number))
        self.model.train()
        for group in self.optimiser.param_groups:
            group["lr"] = self.recipe.learning_rate * self._pace(number)
        loss = self._loss(self._batch(number))
        if not torch.isfinite(loss):
            raise RunFailed(f"train-rewriter: the loss is {loss.item()} at step {number}; lower --learning-rate and start again")
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.named.values(), self.recipe.largest_gradient)
        self.optimiser.step()
        return float(loss.detach())

    def _pace(self, number: int) -> float:
        """Share of the learning rate: up during the warm-up, then down to nothing."""
        warm = max(1, round(self.recipe.warmup * self.total))
        return min((number + 1) / warm, max(0.0, (self.total - number) / max(1, self.total - warm)))

    def _batch(self, number: int) -> list[Example]:
        """The examples of a step: each epoch goes through all of them in an order of its own."""
        first = number * self.recipe.batch
        return [self.learned[self._place(at)] for at in range(first, first + self.recipe.batch)]

    def _place(self, at: int) -> int:
        epoch, within = divmod(at, len(self.learned))
        if self._epoch != epoch:
            source = torch.Generator().manual_seed(seed_of(self.recipe.seed, "epoch", epoch))
            self._epoch, self._order = epoch, torch.randperm(len(self.learned), generator=source).tolist()
        return self._order[within]

    def _loss(self, batch: Sequence[Example]) -> Tensor:
        longest = max(len(example.tokens) for example in batch)
        tokens = torch.full((len(batch), longest), self.pad)
        wanted = torch.full((len(batch), longest), HIDDEN)
        mask = torch.zeros((len(batch), longest), dtype=torch.long)
        for row, example in enumerate(batch):
            tokens[row, : len(example.tokens)] = torch.tensor(example.tokens)
            wanted[row, : len(example.wanted)] = torch.tensor(example.wanted)
            mask[row, : len(example.tokens)] = 1
        logits = self.model(input_ids=tokens.to(self.device), attention_mask=mask.to(self.device)).logits.float()
        return functional.cross_entropy(logits[:, :-1].transpose(1, 2), wanted[:, 1:].to(self.device), ignore_index=HIDDEN)

    @torch.no_grad()
    def _loss_of(self, some: Sequence[Example]) -> float:
        """Mean loss over examples, weighted by their tokens, without dropout."""
        self.model.eval()
        total, tokens = 0.0, 0
        for start in range(0, len(some), self.recipe.batch):
            batch = some[start : start + self.recipe.batch]
            count = sum(token != HIDDEN for example in batch for token in example.wanted[1:])
            total += float(self._loss(batch)) * count
            tokens += count
        return total / max(1, tokens)


def _with_adapter(model: Any, recipe: Recipe) -> Any:
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(seed_of(recipe.seed, "adapter"))
    targets = recipe.targets if recipe.targets == "all-linear" else [name.strip() for name in recipe.targets.split(",")]
    settings = LoraConfig(
        r=recipe.rank,
        lora_alpha=recipe.alpha,
        lora_dropout=recipe.dropout,
        target_modules=targets,
        bias="none",
        task_type="CAUSAL_LM",
    )
    try:
        return get_peft_model(model, settings)
    except ValueError as error:
        raise BadSpec(
            f"train-rewriter: no adapter fits a {type(model).__name__} with targets {recipe.targets!r}: {one_line(error)}"
        ) from None


def _place(base: str) -> str:
    """Return the folder or hub repository of the base model."""
    return weights.bundled(base.removeprefix("llm:"))
