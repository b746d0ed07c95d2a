"""Pairs of captions to train a rewriter on: proposals of another rewriter that pass the checks of edits.

OUT/batches/NNNNNN.json       while pairs are made: answers about some captions, each file written whole
OUT/pairs.jsonl, card.json    once done: the pairs, and what they were made from, with shares and reasons per factor
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from counterfoil.core.errors import BadData, RunFailed
from counterfoil.core.naming import image_seed
from counterfoil.core.tables import read_json, read_text
from counterfoil.parts.contracts import Rewriter, RewriteRequest, provenance_of
from counterfoil.parts.language.captions import read_captions
from counterfoil.parts.language.edits import EditChecker, check_factor, check_proposals
from counterfoil.parts.language.english import tidy
from counterfoil.parts.language.grammar import FACTORS
from counterfoil.parts.language.training import Pair, check_same, write_pairs
from counterfoil.store.files import hold, write_whole, writing

BATCH = 16  # captions per file: what a kill can lose
EXAMPLES = 3  # of a factor in the card


@dataclass(frozen=True)
class PairsMade:
    """Outcome of making pairs."""

    file: Path
    pairs: int
    proposals: int
    by_factor: Mapping[str, Mapping[str, Any]]


def make_pairs(
    captions: Path,
    teacher: Rewriter,
    out: Path,
    *,
    name: str,
    factors: Sequence[str] = FACTORS,
    words: str = "english",
    seed: int = 0,
    watch: Callable[[int, int], None] = lambda done, total: None,
) -> PairsMade:
    """Ask a rewriter, called `name`, for edits of captions and keep those that pass; the same call resumes.

    Captions are lines of a text, or a file as `captions:FILE` reads it; `words` are the word lists that edits are checked by.
    """
    texts = list(dict.fromkeys(tidy(text) for text in _texts(captions) if tidy(text)))
    if not texts:
        raise BadData(f"{captions}: holds no captions; write one per line")
    asked = {
        "teacher": {"name": name, **provenance_of(teacher)},
        "captions": {"count": len(texts), "sha256": hashlib.sha256("\n".join(texts).encode()).hexdigest()},
        "factors": [check_factor(factor) for factor in factors],
        "words": words,
        "seed": seed,
    }
    checker = EditChecker.build(words)
    with writing(out):
        (out / "batches").mkdir(parents=True, exist_ok=True)
    with hold(out), writing(out):
        _begin(out, asked)
        for start in range(0, len(texts), BATCH):
            part = out / "batches" / f"{start // BATCH:06}.json"
            if not part.is_file() and not (out / "card.json").is_file():
                write_whole(part, json.dumps(_ask(teacher, checker, texts[start : start + BATCH], factors, seed)).encode())
            watch(min(start + BATCH, len(texts)), len(texts))
        return _finish(out, asked)


def _texts(captions: Path) -> list[str]:
    return read_text(captions).splitlines() if captions.suffix.lower() == ".txt" else list(read_captions(captions).values())


def _ask(
    teacher: Rewriter, checker: EditChecker, texts: Sequence[str], factors: Sequence[str], seed: int
) -> list[dict[str, Any]]:
    """The checked answers about some captions, one per caption and factor."""
    requests = [RewriteRequest(text, factor, image_seed(seed, text)) for text in texts for factor in factors]
    answers = check_proposals(teacher, checker, requests, [""] * len(requests))
    silent = next((each.detail for answer in answers for each in answer.rejections if each.reason == "endpoint"), None)
    if silent is not None:
        raise RunFailed(f"{silent}; finished work is kept, the same command resumes once the endpoint is back")
    return [
        {
            "caption": request.caption,
            "factor": request.factor,
            "edits": [edit.caption for edit in answer.edits],
            "rejected": [each.reason for each in answer.rejections],
        }
        for request, answer in zip(requests, answers, strict=True)
    ]


def _begin(out: Path, asked: Mapping[str, Any]) -> None:
    """Refuse a folder with pairs of something else, and note what these are made from."""
    noted = [file for file in (out / "card.json", out / "batches" / "asked.json") if file.is_file()]
    if noted:
        check_same(out, "pairs", read_json(noted[0]), asked)
    else:
        write_whole(out / "batches" / "asked.json", json.dumps(asked).encode())


def _finish(out: Path, asked: Mapping[str, Any]) -> PairsMade:
    """Write the pairs and then the card, which says that they are whole."""
    card, file = out / "card.json", out / "pairs.jsonl"
    if not card.is_file():
        rows = [row for part in sorted((out / "batches").glob("0*.json")) for row in read_json(part)]
        pairs = [Pair(row["caption"], row["factor"], edit) for row in rows for edit in row["edits"]]
        if not pairs:
            reasons = ", ".join(
                f"{reason} {n}" for reason, n in Counter(r for row in rows for r in row["rejected"]).most_common(3)
            )
            raise BadData(f"{out}: none of the teacher's proposals passed the checks ({reasons or 'there were none'})")
        write_pairs(file, pairs)
        counted = {factor: _count([row for row in rows if row["factor"] == factor]) for factor in asked["factors"]}
        content = {"sha256": hashlib.sha256(file.read_bytes()).hexdigest(), "pairs": len(pairs), "by_factor": counted, **asked}
        write_whole(card, (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())
    shutil.rmtree(out / "batches", ignore_errors=True)
    content = read_json(card)
    if hashlib.sha256(file.read_bytes()).hexdigest() != content["sha256"]:
        raise BadData(f"{file}: was changed after it was made; train on it by its own name, or delete {card.name} and it")
    by_factor = content["by_factor"]
    return PairsMade(file, content["pairs"], sum(each["proposals"] for each in by_factor.values()), by_factor)


def _count(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Proposals for one factor, the share that passed, and why the rest did not."""
    edits = [(row["caption"], edit) for row in rows for edit in row["edits"]]
    reasons = Counter(reason for row in rows for reason in row["rejected"])
    proposals = len(edits) + sum(reasons.values())
    share = round(len(edits) / proposals, 4) if proposals else None
    return {
        "captions": len(rows),
        "proposals": proposals,
        "passed": len(edits),
        "share": share,
        "rejected": dict(reasons.most_common()),
        "examples": edits[:EXAMPLES],
    }


def describe(made: PairsMade) -> list[str]:
    """Lines for people: the share of proposals that passed, per factor, and the commonest reason of the others."""
    lines = []
    for factor, each in made.by_factor.items():
        reasons = ", ".join(f"{reason} {count}" for reason, count in list(each["rejected"].items())[:3])
        share = f"{100 * each['share']:.0f} %" if each["share"] is not None else "–"
        lines.append(f"{factor:<12}{each['passed']:>6} of {each['proposals']:<6}{share:>6}  {reasons}".rstrip())
    return lines
