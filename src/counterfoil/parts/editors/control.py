"""Prompt-to-prompt control of a batch: what each row borrows from its source at each step.

Paper: Hertz, Mokady, Tenenbaum, Aberman, Pritch and Cohen-Or, "Prompt-to-prompt image editing with cross attention
control". Every target row has a source row in the same call of the denoiser. Up to a share of the steps its
self-attention is the source's; up to another share its cross-attention is a mixture of the source's and its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn import functional

from counterfoil.parts.editors import words
from counterfoil.parts.editors.words import Alignment

BLEND_FROM = 0.2  # share of the steps before the changed words' region is known well enough to blend


@dataclass(frozen=True)
class ControlSettings:
    """How firmly the edited picture is held to the source's attention."""

    word_map: str = "refine"  # or "replace"
    cross_replace: float = 0.8  # share of the steps
    reweight: float = 2.0  # factor on the attention of the words that came
    blend: float = 0.0  # threshold of the local blend; 0 is off
    blend_by: str = "words"  # where the changed words are looked at, or "difference": where the captions are answered differently
    self_side: int = 32  # larger self-attention maps than this side squared are left alone

    def mixture(self, alignment: Alignment, length: int) -> tuple[Tensor, Tensor]:
        """Shares of the source's attention and of its own that an edited token gets.  # (length, length), (length,)"""
        make = words.replacement if self.word_map == "replace" else words.refinement
        source, own = make(alignment, length)
        weight = 1 + (self.reweight - 1) * words.changed(alignment, length)[1]
        return source * weight, own * weight


@dataclass
class Heat:
    """Where the changed words have been looked at so far, and edit and source differed, for the local blend.  # (M, h, w) each"""

    went: Tensor
    came: Tensor
    differing: Tensor

    @property
    def side(self) -> int:
        """The latents' side."""
        return self.went.shape[-1]

    def of(self, targets: Tensor) -> Heat:
        """The heat of these targets.  # (m,)"""
        return Heat(self.went[targets], self.came[targets], self.differing[targets])


@dataclass
class Control:
    """What the attention processors need to know of the batch at hand; `begin` moves it to a step."""

    settings: ControlSettings
    steps: int
    owner: Tensor  # (M,) the source of each target, as a place among the sources
    self_shares: Tensor  # (M,) share of the steps with the source's self-attention
    source_mix: Tensor  # (M, L, L)
    own_mix: Tensor  # (M, L)
    went: Tensor  # (M, L) 1 at the tokens that went
    came: Tensor  # (M, L)
    kinds: tuple[Hashable, ...] = ()  # (M,) what beside its share decides a target; where all is told, equals are drawn once
    frugal: bool = False  # maps of attention only where they are looked at; rounds differently
    rows: int = 0  # of a call of the denoiser
    bare: int = 0  # the first of them, in which nothing is borrowed
    source_rows: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))  # (M,) each target's source row
    target_rows: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))  # (M,)
    step: int = 0
    lending: Tensor | None = None  # (rows,)
    heat: Heat = field(default_factory=lambda: Heat(*torch.empty(3, 0, 0, 0)))

    def lay_out(self, rows: int, *, sources: Tensor, targets: Tensor, side: int) -> None:
        """Say in which rows of a call the conditional sources and targets stand, and the latents' side.  # (P,), (M,)"""
        self.rows, self.source_rows, self.target_rows = rows, sources[self.owner], targets
        self.bare = rows - len(sources) - len(targets) if self.frugal else 0
        if self.heat.side != side:
            self.heat = Heat(*torch.zeros(3, len(targets), side, side, device=self.owner.device))
        self.begin(0)

    def of(self, targets: Tensor) -> Control:
        """The control of these targets alone, with the heat they have so far.  # (m,)"""
        per_target = ("owner", "self_shares", "source_mix", "own_mix", "went", "came")
        heat = self.heat.of(targets) if self.heat.side else self.heat
        return replace(self, heat=heat, **{name: getattr(self, name)[targets] for name in per_target})

    def begin(self, step: int) -> None:
        """Go to a step, counted from the noisiest."""
        self.step = step
        borrowing = step < covered(self.self_shares, self.steps)
        self.lending = None
        if bool(borrowing.any()):  # asked once a step, not once a layer: the answer has to come from the device
            self.lending = torch.arange(self.rows, device=self.owner.device)
            self.lending[self.target_rows] = torch.where(borrowing, self.source_rows, self.target_rows)

    def lenders(self, pixels: int) -> Tensor | None:
        """The row whose self-attention each row uses, or None where every row uses its own.  # (rows,)"""
        return self.lending if pixels <= self.settings.self_side**2 else None

    @property
    def looks(self) -> bool:
        """Whether this step needs the maps of cross-attention, or only what comes of them."""
        noticing = bool(self.settings.blend) and self.settings.blend_by == "words"
        return noticing or self._injecting() or not self.frugal

    def inject(self, attention: Tensor) -> Tensor:
        """Cross-attention with the targets' rows replaced as the step wants it.  # (rows − bare, heads, pixels, L)"""
        if not self._injecting():
            return attention
        sources, targets = self.source_rows - self.bare, self.target_rows - self.bare
        lent, own = attention[sources], attention[targets]
        mixed = lent @ self.source_mix.to(lent)[:, None] + own * self.own_mix.to(own)[:, None, None]
        return attention.index_copy(0, targets, mixed)

    def notice(self, attention: Tensor, side: int) -> None:
        """Add a cross-attention layer to the heat of the changed words."""
        wanted = self.settings.blend and self.settings.blend_by == "words"
        if not wanted or side not in (self.heat.side // 2, self.heat.side // 4):
            return
        for rows, tokens, total in (
            (self.source_rows - self.bare, self.went, self.heat.went),
            (self.target_rows - self.bare, self.came, self.heat.came),
        ):
            looked = (attention[rows].float().mean(1) * tokens[:, None]).sum(-1)  # (M, pixels)
            total += functional.interpolate(looked.reshape(-1, 1, side, side), total.shape[-2:], mode="bilinear")[:, 0]

    def compare(self, sources: Tensor, targets: Tensor) -> None:
        """Add how differently the denoiser answers a source and its edit at this step.  # (P, C, h, w), (M, C, h, w)"""
        if self.settings.blend and self.settings.blend_by == "difference":
            self.heat.differing += (targets - sources[self.owner]).abs().mean(1)

    def blend(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Targets with everything but the region of the change taken from the source.  # (M, C, h, w) twice"""
        if not self.settings.blend or self.step < covered(BLEND_FROM, self.steps):
            return targets
        region = self._region()[:, None]
        everywhere = ~region.flatten(1).any(1)[:, None, None, None]  # nothing to go by: nothing to hold back
        return torch.where(region | everywhere, targets, sources)

    def _injecting(self) -> bool:
        return bool(self.step < covered(self.settings.cross_replace, self.steps))

    def _region(self) -> Tensor:
        """Where a target may differ from its source.  # (M, h, w) bool"""
        if self.settings.blend_by == "difference":
            smooth = functional.avg_pool2d(self.heat.differing[:, None], 3, stride=1, padding=1, count_include_pad=False)[:, 0]
            usual = smooth.flatten(1).mean(1)[:, None, None]
            return smooth > self.settings.blend * usual
        return self._looked_at(self.heat.went) | self._looked_at(self.heat.came)

    def _looked_at(self, heat: Tensor) -> Tensor:
        spread = functional.max_pool2d(heat[:, None], 3, stride=1, padding=1)[:, 0]
        peak = spread.flatten(1).amax(1)[:, None, None]
        return (spread > self.settings.blend * peak) & (peak > 0)


def covered(share: Tensor | float, steps: int) -> Tensor:
    """How many of the steps a share covers."""
    return torch.floor(torch.as_tensor(share, dtype=torch.float64) * steps + 1e-9)  # 0.7 × 10 is below 7 in binary


def make_control(
    settings: ControlSettings,
    *,
    alignments: Sequence[Alignment],
    owner: Sequence[int],
    self_shares: Sequence[float],
    steps: int,
    length: int,
    device: torch.device,
    kinds: Sequence[Hashable] = (),
    frugal: bool = False,
) -> Control:
    """The control of M targets, each with its alignment, source and share of self-attention."""
    mixtures = [settings.mixture(alignment, length) for alignment in alignments]
    marks = [words.changed(alignment, length) for alignment in alignments]
    return Control(
        settings,
        steps,
        owner=torch.tensor(owner, device=device),
        self_shares=torch.tensor(self_shares, dtype=torch.float64, device=device),
        source_mix=torch.stack([source for source, _ in mixtures]).to(device),
        own_mix=torch.stack([own for _, own in mixtures]).to(device),
        went=torch.stack([went for went, _ in marks]).to(device),
        came=torch.stack([came for _, came in marks]).to(device),
        kinds=tuple(kinds),
        frugal=frugal,
    )
