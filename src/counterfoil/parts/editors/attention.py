"""Attention processors that put prompt-to-prompt control into a diffusers denoiser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from counterfoil.parts.editors.control import Control


class ControlledAttention:
    """Replaces the attention of one layer: by lending queries and keys within it, or by mixing maps across to the text."""

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
        """What diffusers calls, with its names of the arguments.  # (rows, pixels, width) → same"""
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
        lenders = self.control.lenders(query.shape[2])
        if lenders is not None:
            query, key = query[lenders], key[lenders]
        return functional.scaled_dot_product_attention(query, key, value, scale=scale)

    def _across(self, attn: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        bare = self.control.bare if self.control.looks else len(query)
        free = functional.scaled_dot_product_attention(query[:bare], key[:bare], value[:bare], scale=attn.scale) if bare else None
        if free is not None and bare == len(query):
            return free
        held = self._looked_at(attn, query[bare:], key[bare:], value[bare:])
        return held if free is None else torch.cat([free, held])

    def _looked_at(self, attn: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        rows, heads = query.shape[:2]
        scores: Tensor = attn.get_attention_scores(query.flatten(0, 1), key.flatten(0, 1))
        attention = self.control.inject(scores.unflatten(0, (rows, heads)))  # (rows, heads, pixels, L)
        self.control.notice(attention, round(attention.shape[2] ** 0.5))
        return attention @ value


@contextmanager
def controlled(unet: Any, control: Control) -> Iterator[None]:
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
