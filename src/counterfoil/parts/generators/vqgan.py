"""Latent ascent over the checkpoints of VQGAN's authors: a VQModel of diffusers whose weights have other names.

The entries under `model.params` of the YAML configuration next to a checkpoint decide the network:

    target: taming.models.vqgan.VQModel      or …GumbelVQ
    params:
      n_embed, embed_dim                     number and width of the codes
      ddconfig:                              ch, ch_mult, num_res_blocks, attn_resolutions, resolution, z_channels, …

The codebooks are our own: the authors' way of rounding distances decides which of two codes about as near is taken. On a CPU
images are quantised one at a time, so that the table of distances is that of one image (16 MB for 256 cells and 16,384 codes).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import yaml
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from counterfoil.core.errors import BadWeights, one_line
from counterfoil.parts import weights
from counterfoil.parts.fast.codes import first_least, first_of_equals, nearest_codes
from counterfoil.parts.fast.dtypes import float32
from counterfoil.parts.generators.autoencoders import VectorAutoencoder
from counterfoil.parts.generators.latent import LatentGenerator, Space, check_side

GROUPS = 32  # of every group normalisation


@dataclass(frozen=True)
class Architecture:
    """The sizes of a VQGAN."""

    n_embed: int
    embed_dim: int
    z_channels: int
    ch: int
    ch_mult: tuple[int, ...]
    num_res_blocks: int
    resolution: int
    attn_resolutions: tuple[int, ...] = field(default=())
    gumbel: bool = False

    @property
    def factor(self) -> int:
        """Pixels a side for one code."""
        return int(2 ** (len(self.ch_mult) - 1))

    @property
    def widths(self) -> tuple[int, ...]:
        """Channels at each resolution, the finest first."""
        return tuple(self.ch * multiple for multiple in self.ch_mult)


def read_architecture(path: Path) -> Architecture:
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
    target, where = str(model.get("target", "")), str(path)
    shape = params["ddconfig"]
    usual = {"in_channels": 3, "out_ch": 3, "double_z": False, "give_pre_end": False, "resamp_with_conv": True}
    for name, wanted in usual.items():
        if shape.get(name, wanted) != wanted:
            raise BadWeights(f"{where}: {name} is {shape[name]}; a VQGAN of colour images has {name}: {wanted}")
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
            gumbel=target.rpartition(".")[2] == "GumbelVQ",
        )
    except KeyError as error:
        raise BadWeights(f"{where}: {error.args[0]} is missing from it") from None
    except (TypeError, ValueError) as error:
        raise BadWeights(f"{where}: an entry is not a number ({error})") from None
    sizes = (found.n_embed, found.embed_dim, found.z_channels, found.num_res_blocks, found.resolution, *found.widths)
    if min(sizes) < 1:
        raise BadWeights(f"{where}: sizes and counts are positive, got {min(sizes)}")
    uneven = next((width for width in found.widths if width % GROUPS), None)
    if uneven is not None:
        raise BadWeights(f"{where}: ch × ch_mult gives {uneven} channels; it has to be a multiple of {GROUPS}")
    if found.gumbel and found.embed_dim != found.z_channels:
        raise BadWeights(f"{where}: a GumbelVQ has embed_dim equal to z_channels, got {found.embed_dim} and {found.z_channels}")
    return found


class NearestCodes(nn.Module):
    """Every latent becomes the code nearest to it."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(count, width)

    def forward(self, latents: Tensor) -> Tensor:
        """The codes of latents.  # (N, D, h, w) → (N, D, h, w)"""
        return _look_up(self.embedding.weight, self.indices(latents))

    def indices(self, latents: Tensor) -> Tensor:
        """The numbers of the codes of latents.  # (N, D, h, w) → (N, h, w)"""
        book = self.embedding.weight  # (K, D)
        with float32(latents.device):
            if latents.is_cuda:  # all images at once, by float32 distances
                every = latents.float().permute(0, 2, 3, 1)  # (N, h, w, D)
                return nearest_codes(every.reshape(-1, every.shape[3]), book.float()).view(every.shape[:3])
            lengths = (book**2).sum(1)  # (K,)
            rows = []
            for latent in latents.float():
                cells = latent.flatten(1).T.contiguous()  # (h·w, D)
                # The authors' own sum, in their order. The squares of the cells are the same for every code, but they
                # decide how the distances are rounded, and so which of two codes about as near is taken.
                distances = (cells**2).sum(1, keepdim=True) + lengths - 2 * (cells @ book.T)  # (h·w, K)
                rows.append(first_least(distances))
        return first_of_equals(book.float())[torch.stack(rows)].reshape(len(latents), *latents.shape[2:])


class GumbelCodes(nn.Module):
    """Every latent becomes the code it makes most probable.

    In training codes are drawn, with Gumbel noise; here the most probable one is taken, so that a reconstruction is the
    same every time. A latent and its code are not close to each other, so the gradient is not passed straight from the
    code to the latent but through the expected code (`expected`), as it is in training.
    """

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(width, count, 1)
        self.embed = nn.Embedding(count, width)

    def forward(self, latents: Tensor) -> Tensor:
        """The codes of latents.  # (N, D, h, w) → (N, D, h, w)"""
        return _look_up(self.embed.weight, self.indices(latents))

    def indices(self, latents: Tensor) -> Tensor:
        """The numbers of the codes of latents.  # (N, D, h, w) → (N, h, w)"""
        with float32(latents.device):
            return torch.cat([self.proj(latent[None].float()).argmax(1) for latent in latents])

    def mean_code(self, latents: Tensor) -> Tensor:
        """The mean of all codes, weighted by their probabilities.  # (N, D, h, w) → (N, D, h, w)"""
        with float32(latents.device):
            # The probabilities (32 MB for an image of 32 × 32 cells) are computed again for the gradient, not kept.
            means = [checkpoint(self._expectation, latent[None].float(), use_reentrant=False) for latent in latents]
        return torch.cat(means)

    def _expectation(self, latent: Tensor) -> Tensor:
        return torch.einsum("nkhw,kd->ndhw", F.softmax(self.proj(latent), dim=1), self.embed.weight)


def _look_up(book: Tensor, indices: Tensor) -> Tensor:
    return F.embedding(indices, book).permute(0, 3, 1, 2).contiguous()  # (N, D, h, w)


class VqganAutoencoder(VectorAutoencoder):
    """A VQGAN between images in [0, 1] and codes."""

    def quantise(self, latents: Tensor) -> Tensor:
        """The codes of latents, in the same shape."""
        codes: Tensor = self.network.quantize(latents)
        return codes

    def provenance(self) -> dict[str, str]:
        return {"network": f"VQGAN, {type(self.network.quantize).__name__}", "weights": self.sha256}


class GumbelVqganAutoencoder(VqganAutoencoder):
    """A VQGAN with a Gumbel codebook, whose gradient goes through the expected code."""

    def relax(self, latents: Tensor) -> Tensor:
        """The expected code of latents."""
        expected: Tensor = self.network.quantize.mean_code(latents)
        return expected


def vqgan(
    rest: str, *, config: str | None = None, sha256: str | None = None, space: Space = "before", size: int | None = None
) -> LatentGenerator:
    """Latent ascent over a VQGAN checkpoint of its authors (taming-transformers), plain or Gumbel.

    `rest` is the checkpoint (.ckpt or .safetensors): a path, a file on the hub, a URL, or the folder that training left.
    `config` is its YAML configuration, by default the one next to it; `size` is the side of the images, by default the
    one of the configuration.
    """
    file, settings = find_files(rest, config=config, sha256=sha256)
    shape = read_architecture(settings)
    side = shape.resolution if size is None else check_side(size, factor=shape.factor)
    with torch.device("meta"):  # no time spent on random numbers: every weight comes from the file
        network = build(shape)
    network.to_empty(device="cpu")
    with torch.serialization.safe_globals(_LIGHTNING):
        state = weights.load_state(file)
    own = {rename(name, len(shape.widths)): value for name, value in state.items() if not name.startswith(TRAINING_ONLY)}
    flat = {name for name, value in own.items() if ".attentions." in name and value.dim() == 4}  # 1×1 convolutions there
    weights.load_into(network, {name: value.flatten(1) if name in flat else value for name, value in own.items()}, what=str(file))
    return LatentGenerator(autoencoder(network, shape, sha256=weights.file_sha256(file)), space=space, size=side)


def autoencoder(network: Any, shape: Architecture, *, sha256: str = "") -> VqganAutoencoder:
    """A network of `build` as an autoencoder."""
    return (GumbelVqganAutoencoder if shape.gumbel else VqganAutoencoder)(network, sha256=sha256)


def build(shape: Architecture) -> Any:
    """The network: a VQModel with a codebook of our own."""
    from diffusers import VQModel

    attends = [shape.resolution >> level in shape.attn_resolutions for level in range(len(shape.widths))]
    network = VQModel(
        block_out_channels=shape.widths,
        layers_per_block=shape.num_res_blocks,
        latent_channels=shape.z_channels,
        vq_embed_dim=shape.embed_dim,
        num_vq_embeddings=shape.n_embed,
        norm_num_groups=GROUPS,
        down_block_types=[f"{'Attn' if on else ''}DownEncoderBlock2D" for on in attends],
        up_block_types=[f"{'Attn' if on else ''}UpDecoderBlock2D" for on in reversed(attends)],
    )
    network.quantize = (GumbelCodes if shape.gumbel else NearestCodes)(shape.n_embed, shape.embed_dim)
    return network


_RENAMED = (
    ("encoder.down.", "encoder.down_blocks."), (".block.", ".resnets."), (".attn.", ".attentions."),
    (".upsample.", ".upsamplers.0."), (".downsample.", ".downsamplers.0."), ("nin_shortcut", "conv_shortcut"),
    ("norm_out", "conv_norm_out"),
)  # fmt: skip
_RENAMED_ATTENTION = (
    (".norm.", ".group_norm."), (".q.", ".to_q."), (".k.", ".to_k."), (".v.", ".to_v."), (".proj_out.", ".to_out.0."),
)  # fmt: skip


def rename(name: str, levels: int) -> str:
    """A weight's name in a VQModel of so many levels, from its name in the authors' checkpoints (finest level first)."""
    name = re.sub(r"coder\.mid\.block_(\d)", lambda found: f"coder.mid_block.resnets.{int(found[1]) - 1}", name)
    name = name.replace("mid.attn_1", "mid_block.attentions.0")
    name = re.sub(r"decoder\.up\.(\d+)", lambda found: f"decoder.up_blocks.{levels - 1 - int(found[1])}", name)
    for old, new in _RENAMED:
        name = name.replace(old, new)
    if ".attentions." in name:
        for old, new in _RENAMED_ATTENTION:
            name = name.replace(old, new)
    return name


WEIGHTS = ("*.safetensors", "*.ckpt", "*.pt", "*.pth")
TRAINING_ONLY = ("loss.", "colorize", "model_ema.")  # in the checkpoint, but no part of the autoencoder


class _Absent:
    """Stand-in for a class that a checkpoint names and we do not need. It is never instantiated or called."""


# Lightning writes the settings of its callbacks next to the weights, under the callbacks' own classes. torch refuses to
# name any class when it reads weights only; these are read as names of something that does nothing.
_LIGHTNING: list[Callable[..., Any] | tuple[Callable[..., Any], str]] = [
    (_Absent, f"{package}.callbacks.{module}")
    for package in ("pytorch_lightning", "lightning.pytorch")
    for module in ("model_checkpoint.ModelCheckpoint", "early_stopping.EarlyStopping", "base.Callback")
]


def find_files(place: str, *, config: str | None, sha256: str | None) -> tuple[Path, Path]:
    """The weight file and the configuration: `place` is a file, a folder, a hub file or a URL."""
    folder = Path(place).expanduser()
    if place and folder.is_dir():
        file = _only(folder, WEIGHTS, also=folder / "checkpoints", what="weight file", option="the file itself")
        if sha256 is not None:
            weights.check_hash(file, sha256)
    else:
        file = weights.locate(place, sha256=sha256)
    if config is not None:
        return file, weights.locate(config)
    here = file.parent
    beside = folder / "configs" if folder.is_dir() else here.parent / "configs"  # as the authors' training leaves them
    return file, _only(here, ("*.yaml", "*.yml"), also=beside, what="configuration (.yaml)", option="config=")


def _only(folder: Path, patterns: tuple[str, ...], *, also: Path, what: str, option: str) -> Path:
    """The one file of its kind in a folder, or else in another one."""
    for place in (folder, also):
        found = sorted(path for pattern in patterns for path in place.glob(pattern) if path.is_file())
        if len(found) == 1:
            return found[0]
        if found:
            raise BadWeights(f"{place}: holds {found[0].name} and {found[1].name}; say which {what} to use: give {option}")
    raise BadWeights(f"{folder}: no {what} in it or in {also}; give {option}")
