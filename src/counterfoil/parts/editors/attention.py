"""Prompt-to-prompt: which words correspond, and attention borrowed from the source.

Paper: Hertz, Mokady, Tenenbaum, Aberman, Pritch and Cohen-Or, "Prompt-to-prompt image editing with cross attention
control". Every target row has a source row in the same call of the denoiser. Up to a share of the steps its
self-attention is the source's; up to another share its cross-attention is a mixture of the source's and its own.

Captions are compared word by word; a word's tokens go with it. Tokens that both captions share correspond one to one. A
phrase that was exchanged for another corresponds as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

BLEND_FROM = 0.2  # share of the steps before the changed words' region is known well enough to blend

Encode = Callable[[str], list[int]]
"""A word's or text's tokens, without those for start and end."""


@dataclass(frozen=True)
class Exchange:
    """A phrase of the caption and the one that replaces it; one of the two may be empty. Positions are tokens."""

    before: range
    after: range


@dataclass(frozen=True)
class Alignment:
    """The correspondence between the tokens of a caption and of its edit."""

    kept: tuple[tuple[int, int], ...]  # positions of the same token, before and after
    exchanges: tuple[Exchange, ...]
    lengths: tuple[int, int]  # tokens of each text, start and end included


def align(caption: str, edited: str, encode: Encode) -> Alignment:
    """Align two captions; position 0 is the start token, the one after the last word the end token."""
    spans = _spans(caption, encode), _spans(edited, encode)
    kept, exchanges = [(0, 0)], []
    for what, i1, i2, j1, j2 in SequenceMatcher(a=caption.split(), b=edited.split(), autojunk=False).get_opcodes():
        before, after = _positions(spans[0], i1, i2), _positions(spans[1], j1, j2)
        if what == "equal":
            kept += zip(before, after, strict=True)
        else:
            exchanges.append(Exchange(before, after))
    ends = spans[0][-1].stop, spans[1][-1].stop
    return Alignment((*kept, ends), tuple(exchanges), (ends[0] + 1, ends[1] + 1))


def _spans(text: str, encode: Encode) -> list[range]:
    """The token positions of each word, after an empty span for the start token."""
    spans = [range(1, 1)]
    for word in text.split():
        spans.append(range(spans[-1].stop, spans[-1].stop + len(encode(word))))
    return spans


def _positions(spans: list[range], first: int, last: int) -> range:
    return range(spans[first].stop, spans[last].stop)  # the empty first span shifts words by one


def replacement(alignment: Alignment, length: int) -> tuple[Tensor, Tensor]:
    """Prompt-to-prompt's word swap: shares of the caption's attention each edited token gets, and of its own.

    The attention of a removed phrase is shared out among the tokens of the phrase that replaces it, so that the new thing
    appears where the old one was. Words that were only added keep their own.  # (length, length), (length,)
    """
    source, own = _common(alignment, length)
    for exchange in alignment.exchanges:
        for column in exchange.after:
            if len(exchange.before):
                source[exchange.before.start : exchange.before.stop, column] = 1 / len(exchange.after)
            else:
                own[column] = 1
    return source, own


def refinement(alignment: Alignment, length: int) -> tuple[Tensor, Tensor]:
    """Prompt-to-prompt's refinement: shared tokens get the caption's attention, new ones keep their own.  # as above"""
    source, own = _common(alignment, length)
    for exchange in alignment.exchanges:
        own[exchange.after.start : exchange.after.stop] = 1
    return source, own


def changed_tokens(alignment: Alignment, length: int) -> tuple[Tensor, Tensor]:
    """1 at the tokens that were removed, and at those that were added.  # (length,), (length,)"""
    removed, added = torch.zeros(length), torch.zeros(length)
    for exchange in alignment.exchanges:
        removed[exchange.before.start : exchange.before.stop] = 1
        added[exchange.after.start : exchange.after.stop] = 1
    return removed, added


def _common(alignment: Alignment, length: int) -> tuple[Tensor, Tensor]:
    source, own = torch.zeros(length, length), torch.zeros(length)
    for before, after in alignment.kept:
        source[before, after] = 1
    for column in range(alignment.lengths[1], length):  # padding corresponds to padding, counted from the end token
        source[min(alignment.lengths[0] + column - alignment.lengths[1], length - 1), column] = 1
    return source, own


@dataclass(frozen=True)
class ControlSettings:
    """Strength of the hold of the source's attention on the edited image."""

    word_map: Literal["refine", "replace"] = "refine"
    cross_replace: float = 0.8  # share of the steps
    reweight: float = 2.0  # factor on the attention of the added words
    blend: float = 0.0  # threshold of the local blend; 0 is off
    blend_by: Literal["words", "difference"] = "words"  # by attention to the changed words, or by differing outputs
    self_side: int = 32  # larger self-attention maps than this side squared are left alone

    def mixture(self, alignment: Alignment, length: int) -> tuple[Tensor, Tensor]:
        """Shares of the source's attention and of its own that an edited token gets.  # (length, length), (length,)"""
        make = replacement if self.word_map == "replace" else refinement
        source, own = make(alignment, length)
        weight = 1 + (self.reweight - 1) * changed_tokens(alignment, length)[1]
        return source * weight, own * weight


@dataclass
class ChangeMap:
    """Attention to the changed words so far, and how edit and source differed, for the local blend.  # (M, h, w) each"""

    removed: Tensor
    added: Tensor
    differing: Tensor

    @property
    def side(self) -> int:
        """The latents' side."""
        return self.removed.shape[-1]

    def of(self, targets: Tensor) -> ChangeMap:
        """The map of these targets.  # (m,)"""
        return ChangeMap(self.removed[targets], self.added[targets], self.differing[targets])


@dataclass
class Control:
    """Attention control of one batch; `begin` moves it to a step."""

    settings: ControlSettings
    steps: int
    owner: Tensor  # (M,) the source of each target, as a place among the sources
    self_shares: Tensor  # (M,) share of the steps with the source's self-attention
    source_mix: Tensor  # (M, L, L)
    own_mix: Tensor  # (M, L)
    removed: Tensor  # (M, L) 1 at the tokens that were removed
    added: Tensor  # (M, L)
    equal_until: tuple[Hashable, ...] = ()  # (M,) equal for targets that differ by their share alone, which are drawn once
    skip_unused_maps: bool = False  # attention maps only where they are needed; rounds differently
    rows: int = 0  # of a call of the denoiser
    unconditional: int = 0  # the first of them, in which nothing is borrowed
    source_rows: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))  # (M,) each target's source row
    target_rows: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))  # (M,)
    step: int = 0
    borrowed: Tensor | None = None  # (rows,)
    change: ChangeMap = field(default_factory=lambda: ChangeMap(*torch.empty(3, 0, 0, 0)))

    def lay_out(self, rows: int, *, sources: Tensor, targets: Tensor, side: int) -> None:
        """Set the rows of a call with the conditional sources and targets, and the latents' side.  # (P,), (M,)"""
        self.rows, self.source_rows, self.target_rows = rows, sources[self.owner], targets
        self.unconditional = rows - len(sources) - len(targets) if self.skip_unused_maps else 0
        if self.change.side != side:
            self.change = ChangeMap(*torch.zeros(3, len(targets), side, side, device=self.owner.device))
        self.begin(0)

    def of(self, targets: Tensor) -> Control:
        """The control of these targets alone, with their map so far.  # (m,)"""
        per_target = ("owner", "self_shares", "source_mix", "own_mix", "removed", "added")
        change = self.change.of(targets) if self.change.side else self.change
        return replace(self, change=change, **{name: getattr(self, name)[targets] for name in per_target})

    def begin(self, step: int) -> None:
        """Go to a step, counted from the noisiest."""
        self.step = step
        borrowing = step < count_steps(self.self_shares, self.steps)
        self.borrowed = None
        if bool(borrowing.any()):  # asked once a step, not once a layer: the answer has to come from the device
            self.borrowed = torch.arange(self.rows, device=self.owner.device)
            self.borrowed[self.target_rows] = torch.where(borrowing, self.source_rows, self.target_rows)

    def self_attention_rows(self, pixels: int) -> Tensor | None:
        """The row whose self-attention each row uses, or None where every row uses its own.  # (rows,)"""
        return self.borrowed if pixels <= self.settings.self_side**2 else None

    @property
    def needs_maps(self) -> bool:
        """True if this step needs the maps of cross-attention, not their result alone."""
        return self._by_words or self._injecting() or not self.skip_unused_maps

    def inject(self, attention: Tensor) -> Tensor:
        """Cross-attention with the targets' rows replaced as the step requires.  # (rows − unconditional, heads, pixels, L)"""
        if not self._injecting():
            return attention
        sources, targets = self.source_rows - self.unconditional, self.target_rows - self.unconditional
        source, own = attention[sources], attention[targets]
        mixed = source @ self.source_mix.to(source)[:, None] + own * self.own_mix.to(own)[:, None, None]
        return attention.index_copy(0, targets, mixed)

    def record(self, attention: Tensor, side: int) -> None:
        """Add a cross-attention layer to the map of the changed words."""
        if not self._by_words or side not in (self.change.side // 2, self.change.side // 4):
            return
        for rows, tokens, total in (
            (self.source_rows - self.unconditional, self.removed, self.change.removed),
            (self.target_rows - self.unconditional, self.added, self.change.added),
        ):
            attended = (attention[rows].float().mean(1) * tokens[:, None]).sum(-1)  # (M, pixels)
            total += functional.interpolate(attended.reshape(-1, 1, side, side), total.shape[-2:], mode="bilinear")[:, 0]

    def compare(self, sources: Tensor, targets: Tensor) -> None:
        """Add the difference between the outputs for a source and its edit at this step.  # (P, C, h, w), (M, C, h, w)"""
        if self.settings.blend and self.settings.blend_by == "difference":
            self.change.differing += (targets - sources[self.owner]).abs().mean(1)

    def blend(self, sources: Tensor, targets: Tensor) -> Tensor:
        """Targets with everything but the region of the change taken from the source.  # (M, C, h, w) twice"""
        if not self.settings.blend or self.step < count_steps(BLEND_FROM, self.steps):
            return targets
        region = self._region()[:, None]
        everywhere = ~region.flatten(1).any(1)[:, None, None, None]  # nothing to go by: nothing to hold back
        return torch.where(region | everywhere, targets, sources)

    def _injecting(self) -> bool:
        return bool(self.step < count_steps(self.settings.cross_replace, self.steps))

    @property
    def _by_words(self) -> bool:
        return bool(self.settings.blend) and self.settings.blend_by == "words"

    def _region(self) -> Tensor:
        """The region where a target may differ from its source.  # (M, h, w) bool"""
        if self.settings.blend_by == "difference":
            smooth = functional.avg_pool2d(self.change.differing[:, None], 3, stride=1, padding=1, count_include_pad=False)[:, 0]
            usual = smooth.flatten(1).mean(1)[:, None, None]
            return smooth > self.settings.blend * usual
        return self._region_of(self.change.removed) | self._region_of(self.change.added)

    def _region_of(self, attention: Tensor) -> Tensor:
        spread = functional.max_pool2d(attention[:, None], 3, stride=1, padding=1)[:, 0]
        peak = spread.flatten(1).amax(1)[:, None, None]
        return (spread > self.settings.blend * peak) & (peak > 0)


def count_steps(share: Tensor | float, steps: int) -> Tensor:
    """The number of steps that a share covers."""
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
    equal_until: Sequence[Hashable] = (),
    skip_unused_maps: bool = False,
) -> Control:
    """The control of M targets, each with its alignment, source and share of self-attention."""
    mixtures = [settings.mixture(alignment, length) for alignment in alignments]
    marks = [changed_tokens(alignment, length) for alignment in alignments]
    return Control(
        settings,
        steps,
        owner=torch.tensor(owner, device=device),
        self_shares=torch.tensor(self_shares, dtype=torch.float64, device=device),
        source_mix=torch.stack([source for source, _ in mixtures]).to(device),
        own_mix=torch.stack([own for _, own in mixtures]).to(device),
        removed=torch.stack([removed for removed, _ in marks]).to(device),
        added=torch.stack([added for _, added in marks]).to(device),
        equal_until=tuple(equal_until),
        skip_unused_maps=skip_unused_maps,
    )


class ControlledAttention:
    """Attention of one layer: self-attention with borrowed queries and keys, cross-attention with mixed maps."""

    def __init__(self, control: Control) -> None:
        self.control = control

    def __call__(
        self,
        attn: Any,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
        temb: Tensor | None = None,
    ) -> Tensor:
        """Called by diffusers, with its names of the arguments.  # (rows, pixels, width) → same"""
        text = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        query, key, value = (_heads(attn, part) for part in (attn.to_q(hidden_states), attn.to_k(text), attn.to_v(text)))
        if encoder_hidden_states is None:
            mixed = self._within(query, key, value, scale=attn.scale)
        else:
            mixed = self._across(attn, query, key, value)
        joined = mixed.transpose(1, 2).flatten(2).to(query.dtype)
        out: Tensor = attn.to_out[1](attn.to_out[0](joined))
        scaled: Tensor = (out + hidden_states if attn.residual_connection else out) / attn.rescale_output_factor
        return scaled

    def _within(self, query: Tensor, key: Tensor, value: Tensor, *, scale: float) -> Tensor:
        # Attention is a function of queries and keys alone: with the source's, it is the source's, and no map has to be kept.
        rows = self.control.self_attention_rows(query.shape[2])
        if rows is not None:
            query, key = query[rows], key[rows]
        return functional.scaled_dot_product_attention(query, key, value, scale=scale)

    def _across(self, attn: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        first = self.control.unconditional if self.control.needs_maps else len(query)
        parts = []
        if first:  # rows whose maps are not needed
            parts.append(functional.scaled_dot_product_attention(query[:first], key[:first], value[:first], scale=attn.scale))
        if first < len(query):
            rows, heads = len(query) - first, query.shape[1]
            scores: Tensor = attn.get_attention_scores(query[first:].flatten(0, 1), key[first:].flatten(0, 1))
            attention = self.control.inject(scores.unflatten(0, (rows, heads)))  # (rows, heads, pixels, L)
            self.control.record(attention, round(attention.shape[2] ** 0.5))
            parts.append(attention @ value[first:])
        return parts[0] if len(parts) == 1 else torch.cat(parts)


@contextmanager
def control_attention(unet: Any, control: Control) -> Iterator[None]:
    """The denoiser with its attention under control; as it was before once left."""
    before = dict(unet.attn_processors)
    unet.set_attn_processor({name: ControlledAttention(control) for name in before})
    try:
        yield
    finally:
        unet.set_attn_processor(before)


def _heads(attn: Any, rows: Tensor) -> Tensor:
    split: Tensor = rows.unflatten(-1, (attn.heads, -1))
    return split.transpose(1, 2)  # (rows, heads, tokens, width of a head)
