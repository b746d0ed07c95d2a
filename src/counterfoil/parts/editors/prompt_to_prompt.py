"""The editor of LANCE: invert an image under its caption, redraw it under the edited one with its attention held.

Redrawing walks down the noise levels with sources and their edits side by side, step by step, the edits under the control of
the sources.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from itertools import pairwise
from typing import Any, Literal

import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec
from counterfoil.parts.contracts import EditResult, Inversion, Refusal, Trait
from counterfoil.parts.editors.attention import Control, ControlSettings, align, control_attention, count_steps, make_control
from counterfoil.parts.editors.diffusion import Diffusion, Precision, Schedule, guide
from counterfoil.parts.editors.inversion import INVERSIONS, InversionMethod, NullText, Setting, Walk, check_range
from counterfoil.parts.editors.requests import RowEditor

BATCH_CPU, BATCH_GPU = 4, 16  # images inverted per batch
EDITS_GPU, CANDIDATES_GPU = 16, 40  # edits and candidates per batch at most
_BROKE = "the diffusion gave values that are not numbers"


@dataclass(frozen=True)
class Options:
    """Options of inverting and redrawing. The defaults are LANCE's; None leaves the inversion's own default."""

    inversion: Literal["null-text", "negative-prompt", "ddim", "edit-friendly"] = "null-text"
    steps: int = 50
    guidance: float | tuple[float, ...] = 7.5  # one for all candidates, or one each
    self_replace: float | tuple[float, ...] = (0.4, 0.5, 0.6, 0.7, 0.8)  # share of the steps; one candidate each
    word_map: Literal["refine", "replace"] = "refine"
    cross_replace: float = 0.8
    reweight: float = 2.0
    blend: float = 0.0
    blend_by: Literal["words", "difference"] = "words"
    inner_steps: int | None = None
    rate: float | None = None
    refinements: int | None = None
    skip: float | None = None
    source_guidance: float | None = None
    batch: int | None = None
    precision: Precision | None = None
    compiled: bool = False
    revision: str | None = None

    def __post_init__(self) -> None:
        for name, known in (
            ("inversion", tuple(INVERSIONS)), ("word_map", ("refine", "replace")), ("blend_by", ("words", "difference")),
        ):  # fmt: skip
            if getattr(self, name) not in known:
                raise BadSpec(f"{name} is one of {', '.join(known)}, got {getattr(self, name)!r}")
        check_range("steps", self.steps, 1, 1000)
        for name, highest in (("cross_replace", 1), ("reweight", 100), ("blend", 0.99)):
            check_range(name, getattr(self, name), 0, highest)
        if self.batch is not None:
            check_range("batch", self.batch, 1, 10_000)
        if not self.shares:
            raise BadSpec("self_replace is a share of the steps, or several to try, got none; write self_replace=[0.4, 0.6]")
        for share in self.shares:
            check_range("self_replace", share, 0, 1)
        for guidance in self.guidances:
            check_range("guidance", guidance, 0, 100)
        if len(self.guidances) not in (1, len(self.shares)):
            wanted = f"one number, or {len(self.shares)}, one for each self_replace"
            raise BadSpec(f"guidance is {wanted}, got {len(self.guidances)}")
        method = self.method
        if len(set(self.guidances)) > 1 and not method.by_caption:
            # The source is guided too, and an edit that changes nothing has to end where the source does.
            raise BadSpec(f"several guidances need negative-prompt or edit-friendly inversion, got {self.inversion}")

    @property
    def method(self) -> InversionMethod:
        """The inversion with its own options; an option of another inversion is refused."""
        given = {name: getattr(self, name) for name in _INVERSION_OPTIONS if getattr(self, name) is not None}
        kind = INVERSIONS[self.inversion]
        own = [each.name for each in fields(kind) if each.name in _INVERSION_OPTIONS]
        foreign = [name for name in given if name not in own]
        if foreign:
            raise BadSpec(
                f"{foreign[0]} is no option of {self.inversion} inversion, which takes {' and '.join(own)}; leave it out"
            )
        return kind(**given)

    @property
    def control(self) -> ControlSettings:
        """The options of the attention control."""
        return ControlSettings(self.word_map, self.cross_replace, self.reweight, self.blend, self.blend_by)

    @property
    def shares(self) -> tuple[float, ...]:
        """Share of the steps with the source's self-attention, one per candidate."""
        return tuple(self.self_replace) if isinstance(self.self_replace, Sequence) else (self.self_replace,)

    @property
    def guidances(self) -> tuple[float, ...]:
        """Guidance of all candidates, or of each."""
        return tuple(self.guidance) if isinstance(self.guidance, Sequence) else (self.guidance,)

    @property
    def candidates(self) -> tuple[tuple[float, float], ...]:
        """Share of self-attention and guidance of each candidate."""
        guidances = self.guidances * len(self.shares) if len(self.guidances) == 1 else self.guidances
        return tuple(zip(self.shares, guidances, strict=True))

    @property
    def sweep(self) -> tuple[str, ...]:
        """The names of the candidates."""
        if len(self.guidances) == 1:
            return tuple(f"self_replace={share:g}" for share in self.shares)
        return tuple(f"self_replace={share:g}, guidance={guidance:g}" for share, guidance in self.candidates)

    def record(self) -> dict[str, Any]:
        """Everything that decides an edit, as plain data."""
        deciding = {name: value for name, value in asdict(self).items() if name not in _NOT_DECIDING + _INVERSION_OPTIONS}
        return {**deciding, **asdict(self.method)}  # type: ignore[call-overload]


_INVERSION_OPTIONS = ("inner_steps", "rate", "refinements", "skip", "source_guidance")
_NOT_DECIDING = ("batch", "precision", "compiled", "revision")


def p2p(name: str, options: Options) -> PromptToPrompt:
    """Prompt-to-prompt over a Stable Diffusion 1.x or 2.x pipeline: p2p:FOLDER, or p2p:CompVis/stable-diffusion-v1-4.

    `inversion` is null-text, negative-prompt, ddim or edit-friendly; the other defaults are those of LANCE. Every share of
    the steps in `self_replace` makes a candidate, with a `guidance` of its own if as many are given. `word_map` is refine or
    replace; `blend` above 0 confines the change to where the changed words are attended to, or with `blend_by` difference to
    where source and edit differ in the denoiser's output. docs/howto/editors.md explains each.
    """
    diffusion = Diffusion.load(f"p2p:{name}", name, revision=options.revision)
    return PromptToPrompt(diffusion.accelerate(precision=options.precision, compiled=options.compiled), options)


class PromptToPrompt(RowEditor):
    """Edits by prompt-to-prompt over any inversion."""

    by_word = True

    def __init__(self, diffusion: Diffusion, options: Options | None = None, *, made_for: str = "") -> None:
        super().__init__()
        self.diffusion = diffusion
        self.options = options or Options()
        self.method = self.options.method
        self.schedule = diffusion.schedule(self.options.steps)
        self.sweep = self.options.sweep
        self.size: int | None = diffusion.size
        self.made_for = made_for
        self.tokenizer = diffusion.tokenizer
        self.longest = diffusion.longest

    def to(self, device: str | torch.device) -> PromptToPrompt:
        self.diffusion.place(device)
        return self

    def describe(self) -> list[Trait]:
        size = self.diffusion.size
        traits = [Trait("images", f"{size}×{size}; larger ones are shrunk to it", "the weights")]
        return [*traits, Trait("inversion", f"{self.options.inversion}, {self.options.steps} steps")]

    def provenance(self) -> dict[str, Any]:
        return {**self.diffusion.provenance(), "settings": self.options.record()}

    @property
    def _setting(self) -> Setting:
        return Setting(self.diffusion, self.schedule, self.options.guidances[0])

    def _invert(self, some: list[tuple[Tensor, str, int]]) -> list[Inversion | Refusal]:
        images, captions, seeds = zip(*some, strict=True)
        latents = self.diffusion.encode(torch.stack([image.float() for image in images]))
        found = self.method.invert(self._setting, latents, captions, seeds)
        finite = torch.stack([torch.isfinite(rows.float()).flatten(1).all(1) for rows in found.values()]).all(0).tolist()
        kept = {name: tensor.cpu() for name, tensor in found.items()}
        return [
            Inversion(caption, {name: tensor[row].clone() for name, tensor in kept.items()})
            if finite[row]
            else Refusal(f"{_BROKE} while inverting")
            for row, caption in enumerate(captions)
        ]

    def _edit(self, some: list[tuple[Inversion, str]]) -> list[EditResult | Refusal]:
        distinct = {id(inversion): inversion for inversion, _ in some}
        sources, places = list(distinct.values()), list(distinct)
        owners = [places.index(id(inversion)) for inversion, _ in some]
        found = {
            name: torch.stack([one.tensors[name] for one in sources]).to(self.diffusion.device) for name in sources[0].tensors
        }
        walk = self.method.walk(self._setting, found, [one.caption for one in sources])
        candidates, device = self.options.candidates, self.diffusion.device
        # Drawing equals once saves nearly half of a sweep, but rounds differently: a CPU keeps to the same rows at every step.
        once = device.type != "cpu"
        equal = [(owner, text, guidance) for owner, (_, text) in zip(owners, some, strict=True) for _, guidance in candidates]
        control = make_control(
            self.options.control,
            alignments=[align(one.caption, text, self.diffusion.tokens) for one, text in some for _ in candidates],
            owner=[owner for owner in owners for _ in candidates],
            self_shares=[share for _ in some for share, _ in candidates],
            steps=self.options.steps,
            length=self.diffusion.longest,
            device=device,
            equal_until=equal if once else (),
            skip_unused_maps=once,
        )
        edited = self.diffusion.embed([text for _, text in some]).repeat_interleave(len(candidates), dim=0)
        guidance = torch.tensor([guidance for _ in some for _, guidance in candidates], device=device)
        plain, made = redraw(self.diffusion, self.schedule, walk, edited=edited, control=control, guidance=guidance)
        latents = made.unflatten(0, (len(some), len(candidates)))  # (E, S, C, h, w)
        finite = torch.isfinite(latents).flatten(1).all(1) & torch.isfinite(plain[torch.tensor(owners)]).flatten(1).all(1)
        # Decoded apart from the others of the batch, whose number would change the last digits on a GPU.
        drawn = [self.diffusion.decode(candidates) for candidates in latents]
        redrawn = [self.diffusion.decode(one)[0] for one in plain.split(1)]
        return [
            EditResult(images.cpu(), redrawn[owner].cpu().clone()) if good else Refusal(f"{_BROKE} while redrawing")
            for images, owner, good in zip(drawn, owners, finite.tolist(), strict=True)
        ]

    def _inversion_fault(self, inversion: Inversion) -> str | None:
        found = {name: tuple(tensor.shape) for name, tensor in inversion.tensors.items()}
        wanted = f"{self.options.inversion} inversion at {self.options.steps} steps"
        return None if found == self.method.shapes(self._setting) else f"{found}, which is not what {wanted} leaves"

    def _computing(self) -> AbstractContextManager[None]:
        return self.diffusion.numbers()

    def _rows_per_batch(self) -> tuple[int, int]:
        if self.diffusion.device.type != "cpu":
            return self.options.batch or BATCH_GPU, max(1, min(EDITS_GPU, CANDIDATES_GPU // len(self.sweep)))
        # Rows of null-text end at different times, and a smaller batch may round differently. An edit fills a batch by itself,
        # and images with several edits make no difference to it.
        return self.options.batch or (1 if isinstance(self.method, NullText) else BATCH_CPU), 1


@torch.no_grad()
def redraw(
    diffusion: Diffusion, schedule: Schedule, walk: Walk, *, edited: Tensor, control: Control, guidance: Tensor
) -> tuple[Tensor, Tensor]:
    """Latents of P reconstructions and of M edits.  # edited: (M, L, D), guidance: (M,) → (P, C, h, w), (M, C, h, w)"""
    sources, targets = walk.latents, walk.latents[control.owner]
    everyone = torch.arange(len(sources), device=sources.device)
    for phase in phases(control, first=walk.first, last=schedule.steps):
        drawn, back = (torch.tensor(places, device=sources.device) for places in (phase.drawn, phase.back))
        few, texts, scale, made = control.of(drawn), edited[drawn], guidance[drawn], targets[drawn]
        count, many, guided = len(sources), len(made), 0 if walk.source_guidance is None else len(sources)
        # Rows of a call: sources and targets unconditional, then sources and targets conditional.
        rows = torch.arange(guided + many + count + many, device=sources.device)
        _, _, of_sources, of_targets = rows.split([guided, many, count, many])
        few.lay_out(len(rows), sources=of_sources, targets=of_targets, side=sources.shape[-1])
        with diffusion.without_compiling(), control_attention(diffusion.unet, few):
            for step in phase.steps:
                few.begin(step)
                empty = walk.unconditional_at(step)
                outputs = diffusion.predict(
                    torch.cat([sources[:guided], made, sources, made]),
                    schedule.times[step],
                    torch.cat([empty[:guided], empty[few.owner], walk.conditional, texts]),
                )
                source_empty, made_empty, source_text, made_text = outputs.split([guided, many, count, many])
                few.compare(source_text, made_text)
                if walk.source_guidance is not None:
                    source_text = guide(source_empty, source_text, walk.source_guidance)
                made_text = guide(made_empty, made_text, scale)
                sources = walk.advance(schedule, source_text, sources, step=step, owner=everyone)
                made = few.blend(sources[few.owner], walk.advance(schedule, made_text, made, step=step, owner=few.owner))
        targets, control.change = made[back], few.change.of(back)
    return sources, targets


@dataclass(frozen=True)
class Phase:
    """Steps in which the same targets are still one image."""

    steps: range
    drawn: tuple[int, ...]  # one target of each image
    back: tuple[int, ...]  # (M,) the place of every target's image among those


def phases(control: Control, *, first: int, last: int) -> list[Phase]:
    """The walk in phases.

    Candidates of an edit with the same guidance are one image until the first stops borrowing the source's self-attention,
    and are drawn once until then; without `equal_until` every target is drawn from the start.
    """
    groups: Sequence[object] = control.equal_until or range(len(control.owner))
    ends = [min(max(int(step), first), last) for step in count_steps(control.self_shares.cpu(), control.steps)]
    bounds = sorted({first, last, *(ends if control.equal_until else ())})
    found = []
    for start, stop in pairwise(bounds):
        images = [(group, min(end, start + 1)) for group, end in zip(groups, ends, strict=True)]
        distinct = list(dict.fromkeys(images))
        drawn = tuple(images.index(image) for image in distinct)
        found.append(Phase(range(start, stop), drawn, tuple(distinct.index(image) for image in images)))
    return found
