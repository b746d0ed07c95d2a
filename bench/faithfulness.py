"""How faithful the lab's edits are: is the asked-for change there, is everything else as it was?

    python bench/faithfulness.py [--inversion NAME …] [--count 60] [--distribution full] [--set KEY=VALUE …] [--out FILE]

Scenes with known attributes are inverted under their true caption; one factor at a time gets another value, the picture is
edited, the best of the sweep that passes quality control is kept if the oracle still sees the garment. The attribute checker,
which took no part, then reads every attribute off the kept pictures; an untouched attribute counts where the checker reads it
right in the source. Shares are of accepted edits, with Wilson's 95 % interval.
Beside them: how near a plain reconstruction comes to what the autoencoder alone leaves of a picture.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from counterfoil import registry
from counterfoil.editing.settings import INVERSIONS
from counterfoil.lab import garments, scenes
from counterfoil.lab.captions import captions, replace
from counterfoil.lab.parts import WEIGHTS
from counterfoil.lab.readings import Reading, mean, share
from counterfoil.lab.train.attributes import split
from counterfoil.lab.train.formats import load_timm, normalise
from counterfoil.lab.vocabulary import FACTORS, GARMENTS
from counterfoil.parts import Edited, Inversion
from counterfoil.quality.measure import Ruler, similarities
from counterfoil.quality.rule import choose
from counterfoil.spec import part
from counterfoil.spec.lance import QualitySpec

EDITED = ("background", "colour", "material", "texture", "object", "domain", "weather")
ASKED, KEPT, UNTOUCHED = 80.0, 95.0, 85.0  # per cent of accepted edits


@dataclass
class Tally:
    """What was read off the accepted edits of one factor."""

    asked: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    hit: list[bool] = field(default_factory=list)
    kept: dict[str, list[bool]] = field(default_factory=dict)

    def refuse(self, why: str) -> None:
        """Count an edit that was not accepted."""
        self.refused[why] = self.refused.get(why, 0) + 1


class Faithfulness:
    """Edits of a set of scenes by one editor."""

    def __init__(self, editor: Any, *, count: int, distribution: str, split_of: str, seed: int, bars: QualitySpec) -> None:
        self.editor, self.bars = editor, bars
        shapes = garments.shipped(split_of)
        self.scenes = scenes.sample(count, garments=shapes, distribution=distribution, seed=seed)
        self.images = (scenes.render(self.scenes, shapes)[0] * 255).round() / 255
        self.captions = captions(self.scenes)
        encoder = registry.create("encoder", "lab:clip")
        self.ruler = Ruler(encoder, tile=4)
        self.oracle = registry.create("oracle", "lab:clip").bind(GARMENTS)
        self.checker = load_timm(WEIGHTS / "attributes").eval()
        self.sources = [self._read(image[None]) for image in self.images]

    def run(self, factors: list[str]) -> dict[str, Any]:
        """Invert everything, edit every factor, and read what came of it."""
        began = time.process_time()
        inversions = self.editor.invert(self.images, self.captions, list(range(len(self.images))))
        inverted = time.process_time() - began
        assert all(isinstance(one, Inversion) for one in inversions), inversions
        tallies = {}
        for factor in factors:
            tallies[factor] = self.edit(factor, inversions)
            print(factor, [(reading.name, round(reading.value, 1)) for reading in readings(factor, tallies[factor])], flush=True)
        seconds = (time.process_time() - began - inverted) / (len(factors) * len(self.images))
        everything = [
            *self.reconstruction(inversions),
            *(one for name, tally in tallies.items() for one in readings(name, tally)),
        ]
        return {
            "settings": self.editor.provenance()["settings"],
            "bars": self.bars.model_dump(),
            "cpu_s_an_inversion": inverted / len(self.images),
            "cpu_s_an_edit": seconds,
            "refused": {factor: tally.refused for factor, tally in tallies.items()},
            "readings": [reading.record() for reading in everything],
        }

    def edit(self, factor: str, inversions: list[Inversion]) -> Tally:
        """Ask for another value of one factor in every scene."""
        tally = Tally(kept={name: [] for name in FACTORS if name != factor})
        new = [self._other(factor, row) for row in range(len(inversions))]
        edited = [replace(text, factor, FACTORS[factor][value]) for text, value in zip(self.captions, new, strict=True)]
        for row, made in enumerate(self.editor.edit(inversions, edited)):
            tally.asked += 1
            if not isinstance(made, Edited):
                tally.refuse(made.reason)
                continue
            found = similarities(
                self.ruler, self.images[row], list(made.candidates), caption=self.captions[row], edited=edited[row]
            )
            chosen = choose(found, self.bars)
            picture = (made.candidates[chosen.index][None] * 255).round() / 255
            label = self.scenes.factors["garment"][row : row + 1]
            if chosen.check:
                tally.refuse(chosen.check)
            elif not bool(self.oracle.judge(picture, label).keeps_label[0] == 1):
                tally.refuse("the oracle does not see the class")
            else:
                read = self._read(picture)
                tally.hit.append(read[factor] == new[row])
                for name, rows in tally.kept.items():
                    truth = int(self.scenes.factors[name][row])
                    if self.sources[row][name] == truth:  # where it misreads the source, its word on the edit says nothing
                        rows.append(read[name] == truth)
        return tally

    def reconstruction(self, inversions: list[Inversion]) -> list[Reading]:
        """What an edit without a change costs, in decibels: beside the original, and below the autoencoder's own limit."""
        few = inversions[:16]
        made = self.editor.edit(few, self.captions[: len(few)])
        images = self.images[: len(few)]
        plain = torch.stack([one.reconstruction for one in made])
        limit = psnr(self.editor.diffusion.decode(self.editor.diffusion.encode(images)).cpu(), images)
        reached = psnr(plain, images)
        return [
            mean("reconstruction", reached, "dB"),
            mean("reconstruction below the autoencoder's limit", limit - reached, "dB", at_most=0.5),
        ]

    def _other(self, factor: str, row: int) -> int:
        """Another value than the scene's, the same for every editor."""
        draw = int.from_bytes(hashlib.blake2b(f"{factor} {row}".encode(), digest_size=8).digest(), "big")
        values = len(FACTORS[factor])
        return (int(self.scenes.factors[factor][row]) + 1 + draw % (values - 1)) % values

    @torch.no_grad()
    def _read(self, picture: Tensor) -> dict[str, int]:
        return {name: int(scores.argmax(1)) for name, scores in split(self.checker(normalise(picture))).items()}


def psnr(made: Tensor, images: Tensor) -> Tensor:
    """Peak signal to noise.  # (N, 3, H, W) twice → (N,)"""
    return -10 * torch.log10((made - images).square().flatten(1).mean(1))


def readings(factor: str, tally: Tally) -> list[Reading]:
    """The shares of one factor's accepted edits."""
    if not tally.hit or not all(tally.kept.values()):
        return []
    accepted = torch.arange(tally.asked) < len(tally.hit)
    found = [
        share(f"{factor}: accepted", accepted),
        share(f"{factor}: asked change found", torch.tensor(tally.hit), at_least=ASKED),
    ]
    for name, rows in tally.kept.items():
        found.append(share(f"{factor}: {name} kept", torch.tensor(rows), at_least=KEPT if name == "garment" else UNTOUCHED))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inversion", nargs="+", choices=INVERSIONS, default=list(INVERSIONS))
    parser.add_argument("--factors", nargs="+", choices=EDITED, default=list(EDITED))
    parser.add_argument("--count", type=int, default=60)
    parser.add_argument("--distribution", default="full")
    parser.add_argument("--split", default="report", choices=("report", "tune"), help="tune is for choosing settings")
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--set", nargs="+", default=[], metavar="KEY=VALUE", help="options of the editor")
    for bar in ("image_image", "image_text", "directional"):
        parser.add_argument(f"--{bar.replace('_', '-')}", type=float, default=QualitySpec.model_fields[bar].default)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    bars = QualitySpec(image_image=given.image_image, image_text=given.image_text, directional=given.directional)
    results = {"distribution": given.distribution, "split": given.split, "count": given.count, "seed": given.seed}
    for inversion in given.inversion:
        options = {**part("lab:diffusion", given.set).options, "inversion": inversion}
        editor = registry.create("editor", "lab:diffusion", options).to(given.device)
        bench = Faithfulness(
            editor, count=given.count, distribution=given.distribution, split_of=given.split, seed=given.seed, bars=bars
        )
        results[inversion] = bench.run(given.factors)
        for reading in results[inversion]["readings"]:
            one = Reading(**reading)
            held = {True: "held", False: "MISSED", None: ""}[one.holds]
            print(
                f"{inversion:16} {one.name:48} {one.value:6.1f} [{one.low:.1f}, {one.high:.1f}] {one.unit} n={one.n} {held}",
                flush=True,
            )
        if given.out:
            given.out.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
