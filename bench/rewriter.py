"""Share of valid edits among a rewriter's proposals, before and after `counterfoil train-rewriter`, on held-out captions.

    python -m bench.rewriter [--captions 240] [--tried 60] [--epochs 4] [--device cpu] [--keep NAME]

The base is lab:rewriter, which knows full sentences of the lab's grammar: "a photo of a red wool dress on a beach". The pairs
are about shorter captions, "a picture of a dress on a beach", which it never saw: it fills in what they leave out, and so
changes more than it was asked to. Pairs come from the lexicon rewriter; no caption is both trained on and tried. A proposal
is valid when the checker finds that it changes the asked factor and nothing else; duplicates count as invalid.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import torch
from bench.results import add_keep, command, keep

from counterfoil.parts import registry
from counterfoil.parts.contracts import Rewriter, RewriteRequest
from counterfoil.parts.language.edits import CheckedProposals, EditChecker, check_proposals
from counterfoil.parts.language.english import with_article
from counterfoil.parts.language.grammar import FACTORS
from counterfoil.parts.language.training import Pair, Recipe, train, write_pairs
from counterfoil_lab.captions import COMPANIONS, GENERIC, MEDIUMS, PLACES, SKIES
from counterfoil_lab.checker import share
from counterfoil_lab.world import COLOURS, GARMENTS

PROPOSALS = 3  # per request


def short_captions(count: int, seed: int) -> list[str]:
    """Captions that leave out the material, and now and then colour, place, companion and weather; each once."""
    drawn = random.Random(seed)
    openings = [*GENERIC, *(f"{with_article(medium)} of" for medium in MEDIUMS.values())]
    garments = [garment for garment in GARMENTS if garment != "trousers"]
    found: dict[str, None] = {}
    while len(found) < count:
        noun = " ".join(filter(None, (drawn.choice([*COLOURS, *[""] * 4]), drawn.choice(garments))))
        rest = (
            drawn.choice([*PLACES.values(), *[""] * 4]),
            drawn.choice([*COMPANIONS.values()]),
            drawn.choice([*SKIES.values()]),
        )
        found[" ".join(filter(None, (drawn.choice(openings), with_article(noun), *rest)))] = None
    return list(found)


def lexicon_pairs(captions: Sequence[str], checker: EditChecker, seed: int) -> Iterator[Pair]:
    """Checked edits of every factor for every caption, by the lexicon rewriter."""
    requests = [RewriteRequest(caption, factor, seed) for caption in captions for factor in FACTORS]
    lexicon = registry.create("rewriter", "lab:lexicon", {"proposals": PROPOSALS})
    for request, answer in zip(requests, check_proposals(lexicon, checker, requests, [""] * len(requests)), strict=True):
        for edit in answer.edits:
            yield Pair(request.caption, request.factor, edit.caption)


def answers(rewriter: Rewriter, checker: EditChecker, captions: Sequence[str]) -> dict[str, list[CheckedProposals]]:
    """Check the rewriter's proposals, by factor."""
    requests = [RewriteRequest(caption, factor, 7) for factor in FACTORS for caption in captions]
    found = check_proposals(rewriter, checker, requests, [""] * len(requests))
    return {factor: [one for request, one in zip(requests, found, strict=True) if request.factor == factor] for factor in FACTORS}


def valid(found: Sequence[CheckedProposals]) -> str:
    """Return the share of valid proposals with its interval and n."""
    right = [True for one in found for _ in one.edits] + [False for one in found for _ in one.rejections]
    one = share("valid", torch.tensor(right))
    return f"{one.value:.1f} % ({one.low:.1f} to {one.high:.1f}; n = {one.n})"


def main() -> None:
    """Make pairs, train, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--captions", type=int, default=240, help="captions to train on")
    parser.add_argument("--tried", type=int, default=60, help="held-out captions to measure on")
    parser.add_argument("--epochs", type=float, default=4.0)
    parser.add_argument("--learning-rate", type=float, default=3e-3)
    parser.add_argument("--device", default="cpu")
    add_keep(parser)
    given = parser.parse_args()
    checker = EditChecker.build("wardrobe")
    everything = short_captions(given.captions + given.tried, seed=0)
    learned, tried = everything[: given.captions], everything[given.captions :]
    with tempfile.TemporaryDirectory() as folder:
        file, adapter = Path(folder) / "pairs.jsonl", Path(folder) / "adapter"
        pairs = list(lexicon_pairs(learned, checker, seed=0))
        write_pairs(file, pairs)
        recipe = Recipe(epochs=given.epochs, batch=32, learning_rate=given.learning_rate, validation_share=0.0)
        began = time.monotonic()
        done = train(file, "lab:rewriter", adapter, recipe=recipe, device=given.device)
        seconds = time.monotonic() - began
        options = {"proposals": PROPOSALS}
        before = answers(registry.create("rewriter", "lab:rewriter", options), checker, tried)
        tuned = registry.create("rewriter", "lab:rewriter", {**options, "adapter": str(adapter)})
        after = answers(tuned, checker, tried)
    print(
        f"{len(pairs)} pairs from {len(learned)} captions, {done.steps} steps in {seconds:.0f} s; tried on {len(tried)} others.\n"
    )
    found = {factor: (before[factor], after[factor]) for factor in FACTORS}
    found["all"] = (list(chain(*before.values())), list(chain(*after.values())))
    rows = [{"factor": name, "lab:rewriter": valid(one), "with the adapter": valid(two)} for name, (one, two) in found.items()]
    print(*rows, sep="\n")
    if given.keep:
        about = f"Valid proposals before and after training an adapter on {len(pairs)} pairs, on {len(tried)} other captions."
        keep(given.keep, rows, command=command("bench.rewriter"), about=about, covers=["src/counterfoil/parts/language"])
    for name, found in (("lab:rewriter", before), ("with the adapter", after)):
        reasons = Counter(reject.reason for some in found.values() for one in some for reject in one.rejections)
        print(f"\nrejected, {name}: {', '.join(f'{reason} {count}' for reason, count in reasons.most_common()) or 'none'}")


if __name__ == "__main__":
    main()
