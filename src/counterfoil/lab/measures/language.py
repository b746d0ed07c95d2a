"""The models that speak: the captioner and the rewriter, whose sentences are read back by the grammar."""

from __future__ import annotations

import torch
from transformers import BlipForConditionalGeneration, LlamaForCausalLM

from counterfoil.lab.captions import captions, parse
from counterfoil.lab.measures.bench import BATCH, Bench
from counterfoil.lab.prompts import rewriter_prompt
from counterfoil.lab.readings import Reading, share
from counterfoil.lab.train.formats import normalise
from counterfoil.lab.vocabulary import FACTORS


def blip(bench: Bench) -> list[Reading]:
    """Attributes said right in captions."""
    scenes, images = bench.scenes()
    model = bench.load(BlipForConditionalGeneration, "blip")
    tokenizer = bench.tokenizer("blip")
    said: list[dict[str, str]] = []
    for part in images.split(BATCH):
        tokens = model.generate(pixel_values=normalise(part), max_new_tokens=30, do_sample=False)  # type: ignore[operator]
        said += [parse(text) or {} for text in tokenizer.batch_decode(tokens, skip_special_tokens=True)]
    rows = {}
    for factor, values in FACTORS.items():
        truth = [values[i] for i in scenes.factors[factor].tolist()]
        rows[factor] = torch.tensor([one.get(factor) == value for one, value in zip(said, truth, strict=True)])
    readings = [share(f"{factor} said right", right, at_least=95) for factor, right in rows.items()]
    return [*readings, share("everything said right", torch.stack(list(rows.values())).all(0))]


def rewriter(bench: Bench) -> list[Reading]:
    """Edits that change the asked factor and nothing else."""
    texts = captions(bench.undrawn())
    model = bench.load(LlamaForCausalLM, "rewriter")
    tokenizer = bench.tokenizer("rewriter", padding_side="left")
    torch.manual_seed(bench.seed)
    asked = [list(FACTORS)[i % len(FACTORS)] for i in range(len(texts))]
    right = []
    for start in range(0, len(texts), BATCH):
        part = slice(start, start + BATCH)
        prompts = [rewriter_prompt(factor, text) for factor, text in zip(asked[part], texts[part], strict=True)]
        tokens = tokenizer(prompts, padding=True, return_tensors="pt").to(bench.device)
        answer = model.generate(**tokens, max_new_tokens=32, do_sample=True, top_k=0)  # type: ignore[operator]
        edits = tokenizer.batch_decode(answer[:, tokens.input_ids.shape[1] :], skip_special_tokens=True)
        right += [_changed(*row) for row in zip(texts[part], edits, asked[part], strict=True)]
    return [share("edits that change the asked factor alone", torch.tensor(right), at_least=95)]


def _changed(before: str, after: str, factor: str) -> bool:
    old, new = parse(before), parse(after)
    return old is not None and new is not None and all((old[name] != new[name]) == (name == factor) for name in FACTORS)
