"""Scenes of the lab whose every attribute is known, edits asked of them, and the judgement of every candidate."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from lab.training.edit_faithfulness import Candidate, Edit
from torch import Tensor

from counterfoil.parts.contracts import EditResult, Inversion
from counterfoil.parts.editors.prompt_to_prompt import PromptToPrompt
from counterfoil.protocols.lance.quality import EmbeddingBatches, similarities
from counterfoil_lab import parts
from counterfoil_lab.captions import captions
from counterfoil_lab.captions import replace as reworded
from counterfoil_lab.checker import Checker, Reading, mean, share
from counterfoil_lab.drawing.render import render
from counterfoil_lab.world import FACTORS, GARMENTS, sample, shipped

ROWS = {"cpu": 1, "cuda": 640}  # rows of a call of the denoiser while redrawing, about


class Audit:
    """Scenes, the changes asked of them, and everyone who judges what an editor makes of it."""

    def __init__(self, *, count: int, distribution: str, split: str, seed: int, device: str) -> None:
        shapes = shipped(split)
        self.scenes = sample(count, garments=shapes, distribution=distribution, seed=seed)
        self.images = (render(self.scenes, shapes)[0] * 255).round() / 255
        self.captions = captions(self.scenes)
        self.device = device
        self.checker = Checker(device)
        self.ruler = EmbeddingBatches(parts.encoder("clip").to(device), batch=4 if device == "cpu" else 512, device=device)
        self.oracle = parts.oracle("clip").bind(GARMENTS)
        self.oracle.to(device)
        self.embedded = self.ruler.images(list(self.images))
        read = self.checker.read(self.images)
        self.sources = [{name: int(read[name][row]) for name in FACTORS} for row in range(count)]
        self.truths = [{name: int(self.scenes.factors[name][row]) for name in FACTORS} for row in range(count)]
        self._texts: dict[str, Tensor] = {}
        self._inverted: dict[str, list[Inversion]] = {}

    def edits(self, editor: PromptToPrompt, inversions: list[Inversion], factors: Sequence[str], each: int) -> list[Edit]:
        """Ask for another value of `each` of the factors in every scene, in turn, and have all candidates judged."""
        drawing = self._drawing(editor)
        found = []
        for place, factor in enumerate(factors):
            rows = [row for row in range(len(inversions)) if (place - row) % len(factors) < each]
            values = [self._other(factor, row) for row in rows]
            captions = [self.captions[row] for row in rows]
            texts = [reworded(text, factor, FACTORS[factor][value]) for text, value in zip(captions, values, strict=True)]
            asked = [Edit(factor, value, self.truths[row], self.sources[row]) for row, value in zip(rows, values, strict=True)]
            made = drawing.edit([inversions[row] for row in rows], texts)
            found += self._judged(asked, rows, texts, made, names=editor.sweep)
        return found

    def _drawing(self, editor: PromptToPrompt) -> PromptToPrompt:
        """The editor with as many rows at a time as the device likes, and no more than there are."""
        needed = (len(self.images) * len(editor.sweep) + 1) // 2
        return PromptToPrompt(
            editor.diffusion, replace(editor.options, batch=max(1, min(ROWS[self.device.split(":")[0]] // 2, needed)))
        )

    def _judged(
        self, asked: list[Edit], rows: list[int], texts: list[str], made: list[Any], *, names: Sequence[str]
    ) -> list[Edit]:
        done = [
            one if isinstance(made[at], EditResult) else replace(one, refused=made[at].reason) for at, one in enumerate(asked)
        ]
        drawn = [at for at, one in enumerate(made) if isinstance(one, EditResult)]
        if not drawn:
            return done
        pictures = (torch.cat([made[at].candidates for at in drawn]) * 255).round() / 255  # (drawn · S, 3, H, W)
        labels = torch.tensor([self.truths[rows[at]]["garment"] for at in drawn for _ in names])
        embedded, read = self.ruler.images(list(pictures)), self.checker.read(pictures)
        keeps = torch.cat(
            [
                self.oracle.judge(some.to(self.device), some_labels.to(self.device)).keeps_label.cpu() == 1
                for some, some_labels in zip(pictures.split(256), labels.split(256), strict=True)
            ]
        )
        for place, at in enumerate(drawn):
            span = range(place * len(names), (place + 1) * len(names))
            before, after = self._text(self.captions[rows[at]]), self._text(texts[at])
            alike = similarities(self.embedded[rows[at]], embedded[span.start : span.stop], before=before, after=after)
            done[at] = replace(
                done[at],
                candidates=tuple(
                    Candidate(name, close, bool(keeps[where]), {each: int(read[each][where]) for each in FACTORS})
                    for name, close, where in zip(names, alike, span, strict=True)
                ),
            )
        return done

    def _text(self, text: str) -> Tensor:
        if text not in self._texts:
            self._texts[text] = self.ruler.texts([text])[0]
        return self._texts[text]

    def _other(self, factor: str, row: int) -> int:
        """Another value than the scene's, the same for every editor."""
        draw = int.from_bytes(hashlib.blake2b(f"{factor} {row}".encode(), digest_size=8).digest(), "big")
        values = len(FACTORS[factor])
        return (int(self.scenes.factors[factor][row]) + 1 + draw % (values - 1)) % values

    def invert(self, editor: PromptToPrompt) -> list[Inversion]:
        """The inversions of all scenes, on a GPU in one batch; what hangs on the redrawing alone shares them."""
        options, null_text = editor.options, editor.options.inversion == "null-text"
        key = repr((options.inversion, options.guidances if null_text else (), options.method))
        if key in self._inverted:
            return self._inverted[key]
        tile = None if self.device == "cpu" else len(self.images)
        found = PromptToPrompt(editor.diffusion, replace(editor.options, batch=tile)).invert(
            list(self.images), self.captions, list(range(len(self.images)))
        )
        for one in found:
            if not isinstance(one, Inversion):
                sys.exit(f"an inversion was refused: {one.reason}")
        self._inverted[key] = [one for one in found if isinstance(one, Inversion)]
        return self._inverted[key]

    def reconstruction(self, editor: PromptToPrompt, inversions: list[Inversion]) -> list[Reading]:
        """What an edit without a change costs, in decibels: beside the original, and below the autoencoder's own limit."""
        few, images = inversions[:16], self.images[:16]
        one = replace(editor.options, self_replace=editor.options.shares[:1], guidance=editor.options.guidances[:1])
        plainly = PromptToPrompt(editor.diffusion, replace(one, batch=1 if self.device == "cpu" else len(few)))
        made = plainly.edit(few, self.captions[: len(few)])
        plain = torch.stack([one.reconstruction for one in made if isinstance(one, EditResult)])
        limit = psnr(editor.diffusion.decode(editor.diffusion.encode(images)).cpu(), images)
        reached = psnr(plain, images)
        return [
            mean("reconstruction", reached, "dB"),
            mean("reconstruction below the autoencoder's limit", limit - reached, "dB", at_most=0.5),
        ]

    def autoencoder(self, editor: PromptToPrompt) -> list[Reading]:
        """What encoding and decoding alone keep, which no edit can better."""
        read = self.checker.read(
            torch.cat([editor.diffusion.decode(editor.diffusion.encode(some)) for some in self.images.split(32)])
        )
        rows = range(len(self.images))
        kept = {
            name: [int(read[name][row]) == self.truths[row][name] for row in rows if self._read_right(name, row)]
            for name in FACTORS
        }
        return [share(f"{name} kept by the autoencoder alone", torch.tensor(each)) for name, each in kept.items()]

    def _read_right(self, name: str, row: int) -> bool:
        return self.sources[row][name] == self.truths[row][name]


def psnr(made: Tensor, images: Tensor) -> Tensor:
    """Peak signal to noise.  # (N, 3, H, W) twice → (N,)"""
    return -10 * torch.log10((made - images).square().flatten(1).mean(1))
