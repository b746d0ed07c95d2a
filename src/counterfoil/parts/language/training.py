"""Train a LoRA adapter (Hu et al., 2021) for a rewriter on pairs of captions.

Pairs are JSON Lines: {"caption": "a photo of a dog on a sofa", "factor": "subject", "edit": "a photo of a cat on a sofa"}

OUT/training.json                                                    what decides the result, and the loss before
OUT/checkpoints/checkpoint-STEP/                                     while training, written by transformers' Trainer
OUT/adapter_model.safetensors, adapter_config.json, rewriter.json    once done, in peft's layout
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from counterfoil.core.errors import BadData, BadSpec, BadWeights, CounterfoilError, RunFailed, one_line
from counterfoil.core.tables import parse_json, read_json, read_text
from counterfoil.parts.language import lexicon as lexicons
from counterfoil.parts.language.caption_checks import MAX_LETTERS
from counterfoil.parts.language.edits import Difference
from counterfoil.parts.language.english import tidy
from counterfoil.parts.language.grammar import FACTORS, parse
from counterfoil.parts.language.prompted_rewriter import NOTE, PromptStyle, read_note, style_named, style_of
from counterfoil.parts.language.text_models import encode, load_causal, seed_of
from counterfoil.parts.pretrained import DTYPES
from counterfoil.parts.weights import environment, quiet
from counterfoil.store.files import hold, remove, write_whole, writing

OUTCOME = ("steps", "trained_on", "left_out", "loss", "validation_before", "validation_after")
FIELDS = ("caption", "factor", "edit")
IGNORED = -100  # label of the tokens that are not to be predicted
MAX_EDITS = 10  # in one numbered answer


@dataclass(frozen=True)
class Pair:
    """One edit to learn from."""

    caption: str
    factor: str
    edit: str


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a file; a line that is not a pair is named."""
    try:
        lines = enumerate(read_text(path).splitlines(), 1)
    except BadData as error:
        raise BadData(f"{error}; give a JSON Lines file of pairs (docs/howto/rewriters.md)") from None
    pairs = [_pair(line, f"{path}, line {number}") for number, line in lines if line.strip()]
    if not pairs:
        raise BadData(f"{path}: holds no pairs; write one per line, with {', '.join(FIELDS)}")
    return pairs


def _pair(line: str, where: str) -> Pair:
    row = parse_json(line, what=where)
    if not isinstance(row, dict) or not all(isinstance(row.get(name), str) for name in FIELDS):
        given = f"the fields {', '.join(map(str, row)) or 'none'}" if isinstance(row, dict) else f"a JSON {type(row).__name__}"
        raise BadData(f"{where}: has {given}; a pair has the texts {', '.join(FIELDS)}")
    if row["factor"] not in FACTORS:
        raise BadData(f"{where}: the factor {row['factor']!r} is none of {', '.join(FACTORS)}")
    caption, edit = tidy(row["caption"]), tidy(row["edit"])
    if not caption or not edit or max(len(caption), len(edit)) > MAX_LETTERS:
        raise BadData(f"{where}: caption and edit have from 1 to {MAX_LETTERS} letters, got {len(caption)} and {len(edit)}")
    if caption == edit:
        raise BadData(f"{where}: the edit is the caption itself; leave such pairs out")
    return Pair(caption, row["factor"], edit)


def write_pairs(path: Path, pairs: Iterable[Pair]) -> None:
    """Write pairs, one per line."""
    path.write_text("".join(json.dumps(asdict(pair), ensure_ascii=False) + "\n" for pair in pairs), encoding="utf-8")


def split_pairs(pairs: Sequence[Pair], share: float) -> tuple[list[Pair], list[Pair]]:
    """Pairs to train on and pairs for validation, split by caption, so that no caption is in both; the same every time."""
    hashes = {pair.caption: hashlib.sha256(pair.caption.encode()).digest()[:6] for pair in pairs}
    held = {caption for caption, found in hashes.items() if int.from_bytes(found, "big") / 2**48 < share}
    return [pair for pair in pairs if pair.caption not in held], [pair for pair in pairs if pair.caption in held]


@dataclass(frozen=True)
class Recipe:
    """Settings of a training. Rank, alpha and dropout are the paper's."""

    style: str | None = None  # by default the base model's own, else instruct
    rank: int = 8
    alpha: int = 16
    dropout: float = 0.05
    target_modules: str = "all-linear"  # or names of layers, with commas
    epochs: float = 3.0
    batch: int = 16
    learning_rate: float = 3e-4
    warmup: float = 0.05  # share of the steps
    max_gradient: float = 1.0
    max_tokens: int = 512  # of an example; longer ones are left out
    validation_share: float = 0.05  # of the captions
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("rank", "alpha", "batch", "max_tokens"):
            if getattr(self, name) < 1:
                raise BadSpec(f"train-rewriter: {name} is at least 1, got {getattr(self, name)}")
        for name in ("dropout", "warmup", "validation_share"):
            if not 0 <= getattr(self, name) < 1:
                raise BadSpec(f"train-rewriter: {name} is a share from 0 to below 1, got {getattr(self, name)}")
        if not (0 < self.epochs < math.inf and 0 < self.learning_rate < math.inf):
            raise BadSpec(f"train-rewriter: epochs and learning_rate are above 0, got {self.epochs} and {self.learning_rate}")


@dataclass(frozen=True)
class Trained:
    """Outcome of a training."""

    folder: Path
    steps: int
    resumed_at: int  # 0 unless an interrupted training was resumed
    trained_on: int  # examples
    left_out: int  # pairs that were too long
    loss: float  # mean over the last steps
    validation_before: float | None
    validation_after: float | None


def train(
    file: Path,
    base: str,
    out: Path,
    *,
    recipe: Recipe | None = None,
    device: str = "cpu",
    dtype: Literal["float32", "bfloat16"] = "float32",
    save_every: int = 100,
    watch: Callable[[int, int, float], None] = lambda step, steps, loss: None,
) -> Trained:
    """Train an adapter for `base` on the pairs in `file` into the folder `out`, or resume where it was interrupted."""
    recipe = recipe or Recipe()
    pairs = read_pairs(file)
    to_learn, to_validate = split_pairs(pairs, recipe.validation_share)
    if not to_learn:
        raise BadSpec(f"{file}: all pairs are held out for validation; lower --validation-share, or give more captions")
    content = json.dumps([asdict(pair) for pair in pairs], sort_keys=True)
    begun = {"base": base, "recipe": asdict(recipe), "pairs": hashlib.sha256(content.encode()).hexdigest(), "dtype": dtype}
    with _hold(out):
        note = read_note(out)
        if note:
            check_same(out, "an adapter", note.get("begun"), begun)
            return Trained(out, resumed_at=note["steps"], **{name: note[name] for name in OUTCOME})
        torch.manual_seed(seed_of(recipe.seed, "adapter"))
        model, tokenizer, location = load_causal(base, dtype=DTYPES[dtype])
        style = style_named(recipe.style) if recipe.style else style_of(Path(location)) or style_named("instruct")
        room = min(recipe.max_tokens, int(getattr(model.config, "max_position_embeddings", 0) or recipe.max_tokens))
        learned = make_examples(to_learn, style, tokenizer, room)
        validated = make_examples(to_validate, style, tokenizer, room) if to_validate else []
        trainer = _trainer(_with_adapter(model, recipe), tokenizer, learned, recipe, out, device, save_every, watch)
        progress = _begin(out, begun, lambda: _validation_loss(trainer, validated))
        resumed_at = _run(trainer, out)
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        outcome = {
            "steps": trainer.state.global_step,
            "trained_on": len(learned),
            "left_out": 0 if style.is_numbered else len(to_learn) - len(learned),
            "loss": sum(losses[-20:]) / len(losses[-20:]),
            "validation_before": progress["validation_before"],
            "validation_after": _validation_loss(trainer, validated),
        }
        _finish(trainer.model, out, {"style": asdict(style), "begun": begun, **outcome, "losses": losses})
        return Trained(out, resumed_at=resumed_at, **outcome)


def make_examples(pairs: Sequence[Pair], style: PromptStyle, tokenizer: Any, max_tokens: int) -> list[dict[str, list[int]]]:
    """Tokens and labels, one example per pair, or one per caption and factor where answers are numbered lists."""
    texts: list[tuple[str, str]] = []
    if style.is_numbered:
        groups: dict[tuple[str, str], list[str]] = {}
        for pair in pairs:
            groups.setdefault((pair.caption, pair.factor), []).append(pair.edit)
        for (caption, factor), edits in groups.items():
            for some in (edits[start : start + MAX_EDITS] for start in range(0, len(edits), MAX_EDITS)):
                texts.append((style.prompt(caption, factor, len(some), tokenizer), style.answer(some)))
    else:
        texts = [(style.prompt(each.caption, _word(each, style), 1, tokenizer), style.answer([each.edit])) for each in pairs]
    made = []
    for prompt, answer in texts:
        before = encode(tokenizer, prompt)
        after = [*tokenizer(answer, add_special_tokens=False, verbose=False).input_ids, tokenizer.eos_token_id]
        made.append({"input_ids": [*before, *after], "labels": [*[IGNORED] * len(before), *after]})
    kept = [example for example in made if len(example["input_ids"]) <= max_tokens]
    if not kept:
        raise BadData(f"none of {len(made)} examples fits into {max_tokens} tokens; give --max-tokens, or shorter captions")
    return kept


def _word(pair: Pair, style: PromptStyle) -> str:
    """The model's own word for the factor of a pair; of several, the kind of adjective in which the two captions differ."""
    words = style.words.get(pair.factor, (pair.factor,))
    if len(words) == 1:
        return words[0]
    lexicon = lexicons.load(style.lexicon)
    difference = Difference.between(parse(pair.caption, lexicon), parse(pair.edit, lexicon))
    kinds = [lexicon.kinds.get(word.text, "") for change in difference.changes for word in change.with_meaning]
    return next((kind for kind in kinds if kind in words), words[0])


def _with_adapter(model: Any, recipe: Recipe) -> Any:
    from peft import LoraConfig, get_peft_model

    names = recipe.target_modules
    settings = LoraConfig(
        r=recipe.rank,
        lora_alpha=recipe.alpha,
        lora_dropout=recipe.dropout,
        target_modules=names if names == "all-linear" else [name.strip() for name in names.split(",")],
        bias="none",
        task_type="CAUSAL_LM",
    )
    try:
        return get_peft_model(model, settings)
    except ValueError as error:
        raise BadSpec(f"train-rewriter: no adapter fits a {type(model).__name__} with {names!r}: {one_line(error)}") from None


def _trainer(
    model: Any,
    tokenizer: Any,
    learned: Sequence[dict[str, list[int]]],
    recipe: Recipe,
    out: Path,
    device: str,
    save_every: int,
    watch: Callable[[int, int, float], None],
) -> Any:
    from transformers import DataCollatorForSeq2Seq, PrinterCallback, Trainer, TrainerCallback, TrainingArguments

    class Watch(TrainerCallback):  # type: ignore[misc]
        def on_log(self, args: Any, state: Any, control: Any, logs: Mapping[str, Any] | None = None, **more: Any) -> None:
            if logs and "loss" in logs:
                if not math.isfinite(logs["loss"]):
                    where = f"the loss is {logs['loss']} at step {state.global_step}"
                    raise RunFailed(f"train-rewriter: {where}; lower --learning-rate and start again")
                watch(state.global_step, state.max_steps, logs["loss"])

    tokenizer.padding_side = "right"
    total = math.ceil(len(learned) / recipe.batch) * recipe.epochs
    with environment("ACCELERATE_TORCH_DEVICE", device):
        arguments = TrainingArguments(
            output_dir=str(out / "checkpoints"),
            per_device_train_batch_size=recipe.batch,
            per_device_eval_batch_size=recipe.batch,
            num_train_epochs=recipe.epochs,
            learning_rate=recipe.learning_rate,
            max_grad_norm=recipe.max_gradient,
            warmup_steps=max(1, round(recipe.warmup * total)),
            seed=recipe.seed,
            data_seed=recipe.seed,
            use_cpu=device == "cpu",
            save_strategy="steps",
            save_steps=save_every,
            save_total_limit=2,
            logging_steps=1,
            logging_nan_inf_filter=False,
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
            dataloader_pin_memory=False,
            prediction_loss_only=True,
            log_level="error",
        )
        collate = DataCollatorForSeq2Seq(tokenizer, label_pad_token_id=IGNORED)
        trainer = Trainer(model=model, args=arguments, train_dataset=list(learned), data_collator=collate)
    trainer.remove_callback(PrinterCallback)  # it prints every loss
    trainer.add_callback(Watch())
    return trainer


def _run(trainer: Any, out: Path) -> int:
    """Train to the end, and return the step at which it resumed."""
    whole = [path for path in (out / "checkpoints").glob("checkpoint-*") if (path / "trainer_state.json").is_file()]
    last = max(whole, key=lambda path: int(path.name.rpartition("-")[2]), default=None)  # the state is written last
    torch.manual_seed(seed_of(trainer.args.seed, "dropout"))
    try:
        with writing(out), quiet():
            trainer.train(resume_from_checkpoint=str(last) if last else None)
    except CounterfoilError:
        raise
    except Exception as error:  # libraries meet damaged files with errors of many kinds
        if last is None or trainer.state.global_step > int(last.name.rpartition("-")[2]):
            raise
        raise BadWeights(f"{last}: cannot be loaded ({one_line(error)}); delete it, and training resumes before it") from None
    return int(last.name.rpartition("-")[2]) if last else 0


def _validation_loss(trainer: Any, examples: Sequence[dict[str, list[int]]]) -> float | None:
    """Mean loss over examples, without dropout."""
    return float(trainer.evaluate(list(examples))["eval_loss"]) if examples else None


@contextmanager
def _hold(out: Path) -> Iterator[None]:
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
    with hold(out):
        yield


def _begin(out: Path, begun: Mapping[str, Any], measure: Callable[[], float | None]) -> dict[str, Any]:
    """The note of a training that has begun with the same settings, written if there is none."""
    file = out / "training.json"
    if file.is_file():
        note = read_json(file)
        check_same(out, "an adapter", note.get("begun") if isinstance(note, dict) else None, begun)
        return dict(note)
    note = {"begun": dict(begun), "validation_before": measure()}
    with writing(file):
        write_whole(file, json.dumps(note).encode())
    return note


def check_same(out: Path, what: str, before: Any, wanted: Mapping[str, Any]) -> None:
    """Refuse a folder that holds something made with other settings."""
    known = before if isinstance(before, dict) else {}
    differing = [key for key, value in json.loads(json.dumps(wanted)).items() if known.get(key, known) != value]
    if differing:
        what = f"{what} with another {' and '.join(differing)}"
        raise BadSpec(f"{out}: holds {what}; give the same settings to resume, or another --out")


def _finish(model: Any, out: Path, note: Mapping[str, Any]) -> None:
    """Write the adapter, then the note that says it is whole, and remove the working files."""
    import peft

    with writing(out):
        model.save_pretrained(str(out), safe_serialization=True)
        remove(out / "README.md")  # peft's form, left empty
        write_whole(out / NOTE, (json.dumps({**note, "library": f"peft {peft.__version__}"}, indent=1) + "\n").encode())
        shutil.rmtree(out / "checkpoints", ignore_errors=True)
        remove(out / "training.json")
