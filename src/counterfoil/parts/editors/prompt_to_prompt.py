"""The editor of LANCE: invert a picture under its caption, redraw it under the edited one with its attention held."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from counterfoil.engine.device import fetch
from counterfoil.parts.contracts import EditResult, Inversion, Refusal
from counterfoil.parts.editors import methods, rows
from counterfoil.parts.editors.answers import answered
from counterfoil.parts.editors.control import make_control
from counterfoil.parts.editors.diffusion import Diffusion
from counterfoil.parts.editors.redraw import redraw
from counterfoil.parts.editors.settings import Settings
from counterfoil.parts.editors.words import Alignment, align

ROWS_CPU, ROWS_GPU = 4, 16  # pictures inverted at a time
EDITS_GPU, CANDIDATES_GPU = 16, 40  # edits and candidates of a call at most
_BROKE = "the diffusion gave values that are not numbers"


class PromptToPrompt:
    """Edits by prompt-to-prompt over any inversion. `tile` is the number of pictures inverted at a time."""

    def __init__(self, diffusion: Diffusion, settings: Settings | None = None, *, tile: int | None = None) -> None:
        self.diffusion = diffusion
        self.settings = settings or Settings()
        self.schedule = diffusion.schedule(self.settings.steps)
        self.sweep = self.settings.sweep
        self.size: int | None = diffusion.size
        self._tile = tile
        self._edits: int | None = None  # at a time, where memory did not suffice for more

    @property
    def tokenizer(self) -> Any:
        """The text encoder's tokenizer, for those who want captions that fit."""
        return self.diffusion.tokenizer

    def to(self, device: str | torch.device) -> PromptToPrompt:
        """The same editor on another device."""
        self.diffusion.place(device)
        return self

    def invert(self, images: Sequence[Tensor], captions: Sequence[str], seeds: Sequence[int]) -> list[Inversion | Refusal]:
        """One inversion a picture, to be kept and used for every edit of it."""
        asked = list(zip(images, captions, [int(seed) for seed in seeds], strict=True))
        at_a_time = self._inverted_at_a_time()
        with self.diffusion.numbers():
            return answered(asked, self._picture_fault, self._invert, at_a_time=at_a_time, shrink=self._invert_fewer)

    def edit(self, inversions: Sequence[Inversion], edited: Sequence[str]) -> list[EditResult | Refusal]:
        """The pictures redrawn to the edited captions, a candidate for every share of self-attention."""
        asked = list(zip(inversions, edited, strict=True))
        at_a_time = self._edited_at_a_time()
        with self.diffusion.numbers():
            return answered(asked, self._edit_fault, self._edit, at_a_time=at_a_time, shrink=self._edit_fewer)

    def provenance(self) -> dict[str, Any]:
        """Hashes of the weights and the settings."""
        return {**self.diffusion.provenance(), "settings": self.settings.record()}

    def _invert(self, some: list[tuple[Tensor, str, int]]) -> list[Inversion | Refusal]:
        images, captions, seeds = zip(*some, strict=True)
        latents = self.diffusion.encode(torch.stack([image.float() for image in images]))
        found = methods.invert(self.diffusion, self.settings, self.schedule, latents=latents, captions=captions, seeds=seeds)
        sound = methods.finite(found).tolist()
        kept = {name: tensor.cpu() for name, tensor in found.items()}
        return [
            Inversion(caption, {name: tensor[row].clone() for name, tensor in kept.items()})
            if sound[row]
            else Refusal(f"{_BROKE} while inverting")
            for row, caption in enumerate(captions)
        ]

    def _edit(self, some: list[tuple[Inversion, str]]) -> list[EditResult | Refusal]:
        sources, owners = _distinct([inversion for inversion, _ in some])
        names = sources[0].tensors.keys()
        found = {name: torch.stack([one.tensors[name] for one in sources]).to(self.diffusion.device) for name in names}
        walk = methods.open_walk(self.diffusion, self.settings, found, [one.caption for one in sources])
        candidates, device = self.settings.candidates, self.diffusion.device
        # Drawing equals once saves nearly half of a sweep, but rounds differently: a CPU keeps to the same rows at every step.
        thrifty = device.type != "cpu"
        kinds = [(owner, text, pull) for owner, (_, text) in zip(owners, some, strict=True) for _, pull in candidates]
        control = make_control(
            self.settings.control,
            alignments=[self._alignment(*pair) for pair in some for _ in candidates],
            owner=[owner for owner in owners for _ in candidates],
            self_shares=[share for _ in some for share, _ in candidates],
            steps=self.settings.steps,
            length=self.diffusion.longest,
            device=device,
            kinds=kinds if thrifty else (),
            frugal=thrifty,
        )
        edited = self.diffusion.embed([text for _, text in some]).repeat_interleave(len(candidates), dim=0)
        guidance = torch.tensor([pull for _ in some for _, pull in candidates], device=device)
        plain, made = redraw(self.diffusion, self.schedule, walk, edited=edited, control=control, guidance=guidance)
        latents = made.unflatten(0, (len(some), len(candidates)))  # (E, S, C, h, w)
        sound = torch.isfinite(latents).flatten(1).all(1) & torch.isfinite(plain[torch.tensor(owners)]).flatten(1).all(1)
        # Decoded apart from the others of the batch, whose number would change the last digits on a GPU.
        drawn = [fetch([self.diffusion.decode(candidates)]) for candidates in latents]
        redrawn = [fetch([self.diffusion.decode(one)]) for one in plain.split(1)]
        return [
            EditResult(arriving()[0], redrawn[owner]()[0][0].clone()) if good else Refusal(f"{_BROKE} while redrawing")
            for arriving, owner, good in zip(drawn, owners, sound.tolist(), strict=True)
        ]

    def _alignment(self, inversion: Inversion, edited: str) -> Alignment:
        return align(inversion.caption, edited, self.diffusion.tokens)

    def _picture_fault(self, row: tuple[Tensor, str, int]) -> str | None:
        image, caption, _ = row
        return rows.picture_fault(image, self.diffusion.size) or self._caption_fault(caption, "the caption")

    def _edit_fault(self, row: tuple[Inversion, str]) -> str | None:
        inversion, edited = row
        found = {name: tuple(tensor.shape) for name, tensor in inversion.tensors.items()}
        if found != methods.shapes(self.diffusion, self.settings):
            wanted = f"{self.settings.inversion} inversion at {self.settings.steps} steps"
            return f"the inversion holds {found}, which is not what {wanted} leaves; invert the picture again"
        return self._caption_fault(inversion.caption, "the caption") or self._caption_fault(edited, "the edited caption")

    def _caption_fault(self, caption: str, what: str) -> str | None:
        return rows.caption_fault(caption, self.diffusion.tokens, longest=self.diffusion.longest, what=what)

    def _inverted_at_a_time(self) -> int:
        if self._tile is None and self.diffusion.device.type == "cpu" and self.settings.inversion == "null-text":
            return 1  # rows end at different times, and a smaller batch may round differently
        return self._tile or (ROWS_CPU if self.diffusion.device.type == "cpu" else ROWS_GPU)

    def _edited_at_a_time(self) -> int:
        if self.diffusion.device.type == "cpu":
            return 1  # an edit fills a batch by itself, and pictures with several edits make no difference to it
        return self._edits or max(1, min(EDITS_GPU, CANDIDATES_GPU // len(self.sweep)))

    def _invert_fewer(self, rows: int) -> None:
        self._tile = rows

    def _edit_fewer(self, rows: int) -> None:
        self._edits = rows


def _distinct(inversions: Sequence[Inversion]) -> tuple[list[Inversion], list[int]]:
    """The inversions without repetition, and for each row which of them it has."""
    places: dict[int, int] = {}
    sources: list[Inversion] = []
    for inversion in inversions:
        if id(inversion) not in places:
            places[id(inversion)] = len(sources)
            sources.append(inversion)
    return sources, [places[id(inversion)] for inversion in inversions]
