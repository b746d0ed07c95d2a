"""Captioners and rewriters: small language models with random weights, and the lab's."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any


def _captioner(kind: str, folder: Path) -> Any:
    from tests.parts.language.small_models import encoder_decoder

    return f"{kind}:{encoder_decoder(folder)}", {"min_tokens": 3, "max_tokens": 6}


def _captions(folder: Path, stack: ExitStack) -> Any:
    (folder / "captions.jsonl").write_text(json.dumps({"id": "1", "caption": "a dog"}))
    return f"captions:{folder / 'captions.jsonl'}", {}


def _llm(folder: Path, stack: ExitStack) -> Any:
    from tests.parts.language.small_models import llama

    return f"llm:{llama(folder)}", {"max_tokens": 8, "batch": 2}


RECIPES: dict[tuple[str, str], Any] = {
    ("captioner", "blip"): lambda folder, stack: _captioner("blip", folder),
    ("captioner", "hf"): lambda folder, stack: _captioner("hf", folder),
    ("captioner", "captions"): _captions,
    ("captioner", "lab"): lambda folder, stack: ("lab:blip", {}),
    ("rewriter", "lexicon"): lambda folder, stack: ("lexicon:", {}),
    ("rewriter", "llm"): _llm,
    ("rewriter", "lab"): lambda folder, stack: ("lab:rewriter", {"proposals": 1}),
}
