"""Reads the YAML configuration that comes with a VQGAN checkpoint.

The entries under `model.params` that decide the network keep the names they have there:

    target: taming.models.vqgan.VQModel      or …GumbelVQ
    params:
      n_embed, embed_dim                     number and width of the codes
      ddconfig:                              ch, ch_mult, num_res_blocks, attn_resolutions, resolution, z_channels, …
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from counterfoil.core.errors import BadWeights, one_line

GROUPS = 32  # of every group normalisation


@dataclass(frozen=True)
class Architecture:
    """What decides the shape of a VQGAN."""

    n_embed: int
    embed_dim: int
    z_channels: int
    ch: int
    ch_mult: tuple[int, ...]
    num_res_blocks: int
    resolution: int
    attn_resolutions: tuple[int, ...] = field(default=())
    resamp_with_conv: bool = True
    gumbel: bool = False

    @property
    def factor(self) -> int:
        """Pixels a side for one code."""
        return int(2 ** (len(self.ch_mult) - 1))

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels at each resolution, the finest first."""
        return tuple(self.ch * multiple for multiple in self.ch_mult)


def read(path: Path) -> Architecture:
    """The architecture that a configuration file describes."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise BadWeights(f"{path}: cannot be read ({error.strerror})") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadWeights(f"{path}: not YAML ({one_line(error)})") from None
    model = content.get("model", content) if isinstance(content, Mapping) else {}
    params = model.get("params") if isinstance(model, Mapping) else None
    if not isinstance(params, Mapping) or not isinstance(params.get("ddconfig"), Mapping):
        raise BadWeights(f"{path}: has no model.params.ddconfig; give the configuration that came with the checkpoint")
    return architecture(str(model.get("target", "")), params, where=str(path))


def architecture(target: str, params: Mapping[str, Any], *, where: str) -> Architecture:
    """The architecture of `target`, a class of the authors' package, with these parameters."""
    shape = params["ddconfig"]
    for name, wanted in (("in_channels", 3), ("out_ch", 3), ("double_z", False), ("give_pre_end", False)):
        if shape.get(name, wanted) != wanted:
            raise BadWeights(f"{where}: {name} is {shape[name]}; a VQGAN of colour pictures has {name}: {wanted}")
    if params.get("remap"):
        raise BadWeights(f"{where}: remap names a table of used codes, which is not read; take remap out to use every code")
    try:
        found = Architecture(
            n_embed=int(params["n_embed"]),
            embed_dim=int(params["embed_dim"]),
            z_channels=int(shape["z_channels"]),
            ch=int(shape["ch"]),
            ch_mult=tuple(int(multiple) for multiple in shape.get("ch_mult", (1, 2, 4, 8))),
            num_res_blocks=int(shape["num_res_blocks"]),
            resolution=int(shape["resolution"]),
            attn_resolutions=tuple(int(side) for side in shape["attn_resolutions"]),
            resamp_with_conv=bool(shape.get("resamp_with_conv", True)),
            gumbel=target.rpartition(".")[2] == "GumbelVQ",
        )
    except KeyError as error:
        raise BadWeights(f"{where}: {error.args[0]} is missing from it") from None
    except (TypeError, ValueError) as error:
        raise BadWeights(f"{where}: an entry is not a number ({error})") from None
    _check(found, where)
    return found


def _check(found: Architecture, where: str) -> None:
    sizes = (found.n_embed, found.embed_dim, found.z_channels, found.num_res_blocks, found.resolution, *found.widths)
    if min(sizes) < 1:
        raise BadWeights(f"{where}: sizes and counts are positive, got {min(sizes)}")
    uneven = next((width for width in found.widths if width % GROUPS), None)
    if uneven is not None:
        raise BadWeights(f"{where}: ch × ch_mult gives {uneven} channels; it has to be a multiple of {GROUPS}")
    if found.gumbel and found.embed_dim != found.z_channels:
        raise BadWeights(f"{where}: a GumbelVQ has embed_dim equal to z_channels, got {found.embed_dim} and {found.z_channels}")
