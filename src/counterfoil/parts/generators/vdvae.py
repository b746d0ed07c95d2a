"""Latent ascent over Efficient-VDVAE (Hazami et al., 2022), a deep hierarchical variational autoencoder, from its authors' files.

A folder holds a checkpoint and the INI file it was trained with. The latents of an image are the means of the posteriors, found
from the top of the hierarchy down, or draws from them that stay; all of them move, or those of chosen resolutions. An image
is the mean of the network's mixture of logistics, which has a gradient where the authors' draws have none.
"""

from __future__ import annotations

import ast
import configparser
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.core.errors import BadSpec, BadWeights
from counterfoil.parts import weights
from counterfoil.parts.contracts import State, provenance_of
from counterfoil.parts.generators.draws import normal
from counterfoil.parts.generators.latent import LatentGenerator, latent_state, straight_through

Posterior = Literal["mean", "sample"]
Moments = tuple[Tensor, Tensor]
"""The mean and the standard deviation of every latent of a group."""
LONGEST = 10_000  # of a list in a configuration
OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True)
class Half:
    """One half of the network: the encoder's bottom-up blocks, or the decoder's top-down blocks. One item per block."""

    strides: Sequence[int]
    n_blocks_per_res: Sequence[int]
    n_blocks: Sequence[int]
    n_layers: Sequence[int]
    filters: Sequence[int]
    mid_filters_ratio: Sequence[float]
    kernel_size: Sequence[int]


@dataclass(frozen=True)
class Architecture:
    """The sizes of an Efficient-VDVAE, and what its numbers mean."""

    up: Half
    down: Half
    side: int
    bits: int
    skips: Sequence[int]  # channels that a bottom-up block hands over
    variates: Sequence[int]  # channels of latents of a top-down block
    input_filters: int
    input_kernel: Any
    output_kernel: Any
    mixtures: int
    narrow: bool  # whether a bottleneck begins and ends with 1 × 1
    logstd: bool  # a posterior's second half is a logarithm
    beta: float  # sharpness of the softplus, or factor of the logarithm
    residual: bool  # posteriors are relative to priors


def read_architecture(path: Path) -> Architecture:
    """The architecture that an INI file of the authors describes. Its lists are read, never evaluated."""
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, configparser.Error) as error:
        raise BadWeights(f"{path}: not the INI file of an Efficient-VDVAE ({str(error).splitlines()[0]})") from None

    def entry(section: str, name: str) -> Any:
        text = parser.get(section, name, fallback=None)
        if text is None:
            raise BadWeights(f"{path}: has no {name} in [{section}]; give the file that came with the checkpoint")
        try:
            return read_literal(text)
        except (SyntaxError, ValueError, TypeError, ArithmeticError, RecursionError) as error:
            raise BadWeights(f"{path}: {name} = {text[:60]!r} is not a number, a text or a list of them ({error})") from None

    def model(name: str) -> Any:
        return entry("model", name)

    if entry("data", "channels") != 3:
        raise BadWeights(f"{path}: a network for {entry('data', 'channels')} channels; images have three")
    if entry("model", "output_distribution_base") not in ("std", "logstd") or model("distribution_base") not in ("std", "logstd"):
        raise BadWeights(f"{path}: a distribution_base is neither 'std' nor 'logstd'")
    up, down = (Half(**{name: model(f"{way}_{name}") for name in Half.__dataclass_fields__}) for way in ("up", "down"))
    found = Architecture(
        up=up,
        down=down,
        side=int(entry("data", "target_res")),
        bits=int(entry("data", "num_bits")),
        skips=model("up_skip_filters"),
        variates=model("down_latent_variates"),
        input_filters=model("input_conv_filters"),
        input_kernel=model("input_kernel_size"),
        output_kernel=model("output_kernel_size"),
        mixtures=model("num_output_mixtures"),
        narrow=model("use_1x1_conv"),
        logstd=model("distribution_base") == "logstd",
        beta=model("gradient_smoothing_beta"),
        residual=model("use_residual_distribution"),
    )
    lists = [*vars(found.up).values(), *vars(found.down).values(), found.skips, found.variates]
    if any(not isinstance(each, list | tuple) or len(each) != len(found.up.strides) or not each for each in lists):
        raise BadWeights(f"{path}: its lists have different lengths; every block of up_ and down_ has one item in each")
    if prod(found.up.strides) != prod(found.down.strides) or found.side % prod(found.up.strides):
        raise BadWeights(f"{path}: strides of {prod(found.up.strides)} down and {prod(found.down.strides)} up, side {found.side}")
    return found


def read_literal(text: str) -> Any:
    """The value of a number, a text, a list, or of sums and products of these. Anything else is a ValueError."""

    def value(node: ast.AST) -> Any:
        if isinstance(node, ast.Constant) and isinstance(node.value, bool | int | float | str):
            return node.value
        if isinstance(node, ast.List | ast.Tuple):
            return [value(each) for each in node.elts]
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -value(node.operand)
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            left, right = value(node.left), value(node.right)
            if isinstance(node.op, ast.Mult) and any(isinstance(each, list | str) for each in (left, right)):
                many = left if isinstance(left, int) else right
                if len(right if isinstance(left, int) else left) * max(many, 0) > LONGEST:
                    raise ValueError("too long")
            return OPERATORS[type(node.op)](left, right)
        raise ValueError(f"{type(node).__name__} is not read")

    return value(ast.parse(text.strip(), mode="eval").body)


class SameConv(nn.Conv2d):
    """A convolution that keeps the size, with the odd row and column of an even kernel above and to the left."""

    def __init__(self, into: int, out: int, kernel: Any, stride: int = 1) -> None:
        super().__init__(into, out, kernel if isinstance(kernel, int) else tuple(kernel), stride)
        self.around = [side for size in reversed(self.kernel_size) for side in ((size - stride + 1) // 2, (size - stride) // 2)]

    def forward(self, x: Tensor) -> Tensor:
        """Pad and convolve."""
        return super().forward(F.pad(x, self.around) if any(self.around) else x)


class Bottleneck(nn.Module):
    """SiLU and convolution in turn, over few channels in the middle."""

    def __init__(self, into: int, middle: int, out: int, kernel: Any, layers: int, *, narrow: bool) -> None:
        super().__init__()
        ends: Any = 1 if narrow else kernel
        steps: list[nn.Module] = [nn.SiLU(), nn.Conv2d(into, middle, ends, padding="same")]
        for _ in range(layers):
            steps += [nn.SiLU(), SameConv(middle, middle, kernel)]
        self.convs = nn.Sequential(*steps, nn.SiLU(), SameConv(middle, out, ends))

    def forward(self, x: Tensor) -> Tensor:
        """The layers without the input added."""
        result: Tensor = self.convs(x)
        return result


class Residual(Bottleneck):
    """A bottleneck whose input is added to its output."""

    def forward(self, x: Tensor) -> Tensor:
        """The input and what the layers make of it."""
        return x + super().forward(x)


def _residuals(half: Half, block: int, width: int, narrow: bool) -> nn.Sequential:
    middle, kernel = int(width * half.mid_filters_ratio[block]), half.kernel_size[block]
    layers = half.n_layers[block]
    return nn.Sequential(*(Residual(width, middle, width, kernel, layers, narrow=narrow) for _ in range(half.n_blocks[block])))


class Up(nn.Module):
    """A block of the encoder: features for the decoder, and a smaller image for the next block."""

    def __init__(self, found: Architecture, block: int, into: int, *, last: bool) -> None:
        super().__init__()
        half, stride = found.up, found.up.strides[block] if last else 1
        self.residual_block = _residuals(half, block, into, found.narrow)
        if last:
            self.skip_projection = SameConv(into, found.skips[block], 1)
        if stride > 1:
            self.pool = nn.ModuleDict(
                {"ops": nn.Sequential(SameConv(into, half.filters[block], stride, stride), nn.LeakyReLU(0.1))}
            )

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Features for the next block, and those that a level's last block hands over to the decoder."""
        x = self.residual_block(x)
        skip = self.skip_projection(x) if hasattr(self, "skip_projection") else x
        return (self.pool["ops"](x) if hasattr(self, "pool") else x), skip


class Unpool(nn.Module):
    """Larger features, with a bias of their own in every place."""

    def __init__(self, into: int, out: int, stride: int, side: int) -> None:
        super().__init__()
        self.ops = nn.Sequential(SameConv(into, out, 1), nn.LeakyReLU(0.1), nn.Upsample(scale_factor=stride))
        self.scale_bias = nn.Parameter(torch.zeros(1, out, side, side))

    def forward(self, x: Tensor) -> Tensor:
        """Project, repeat and shift."""
        result: Tensor = self.ops(x) + self.scale_bias
        return result


class Down(nn.Module):
    """A block of the decoder, with one group of latents."""

    def __init__(self, found: Architecture, block: int, into: int, stride: int, side: int) -> None:
        super().__init__()
        self.found, self.shape = found, (found.variates[block], side, side)
        half, width, skip = found.down, found.down.filters[block], found.skips[::-1][block]
        if stride > 1:
            self.unpool = Unpool(into, width, stride, side)
            into = width
        self.residual_block = _residuals(half, block, into, found.narrow)
        ratio, kernel, layers = half.mid_filters_ratio[block], half.kernel_size[block], half.n_layers[block]
        both = into + skip
        posterior = Bottleneck(both, int(both * ratio * 0.5), int(both * 0.5), kernel, layers, narrow=found.narrow)
        prior = Bottleneck(into, int(into * ratio), 2 * into, kernel, layers, narrow=found.narrow)
        self.posterior_net, self.prior_net = nn.Sequential(posterior), nn.Sequential(prior)
        self.prior_layer = nn.ModuleDict({"projection": SameConv(into, 2 * self.shape[0], 1)})
        self.posterior_layer = nn.ModuleDict({"projection": SameConv(into, 2 * self.shape[0], 1)})
        self.z_projection = SameConv(self.shape[0], width, 1)

    def forward(self, y: Tensor, latent: Callable[[Callable[[Tensor], Moments]], Tensor]) -> Tensor:
        """Merge a latent into the features; `latent` chooses it, and can ask for the posterior under an encoder's features."""
        if hasattr(self, "unpool"):
            y = self.unpool(y)
        kept, prior = self.prior_net(y).chunk(2, dim=1)

        def posterior(skip: Tensor) -> Moments:
            mean, spread = self.posterior_layer["projection"](self.posterior_net(torch.cat([y, skip], 1))).chunk(2, dim=1)
            spread = spread if self.found.logstd else F.softplus(spread, beta=self.found.beta)
            if self.found.residual:
                before, width = self.prior_layer["projection"](prior).chunk(2, dim=1)
                mean = mean + before
                spread = spread + width if self.found.logstd else spread * F.softplus(width, beta=self.found.beta)
            return mean, (self.found.beta * spread).exp() if self.found.logstd else spread

        result: Tensor = self.residual_block(y + kept + self.z_projection(latent(posterior)))
        return result


class Encoder(nn.Module):
    """The bottom-up half."""

    def __init__(self, found: Architecture) -> None:
        super().__init__()
        half, before = found.up, [found.input_filters, *found.up.filters[:-1]]
        self.input_conv = SameConv(3, found.input_filters, found.input_kernel)
        self.levels_up = nn.ModuleList(
            nn.ModuleList(Up(found, block, into, last=False) for _ in range(half.n_blocks_per_res[block]))
            for block, into in enumerate(before)
        )
        self.levels_up_downsample = nn.ModuleList(Up(found, block, into, last=True) for block, into in enumerate(before))

    def forward(self, x: Tensor) -> list[Tensor]:
        """Features for each level of the decoder, the coarsest first."""
        x, skips = self.input_conv(x), []
        for level, last in zip(self.levels_up, self.levels_up_downsample, strict=True):
            for block in level.children():
                x, _ = block(x)
            x, skip = last(x)
            skips.append(skip)
        return skips[::-1]


class Decoder(nn.Module):
    """The top-down half."""

    def __init__(self, found: Architecture) -> None:
        super().__init__()
        half, before = found.down, [found.down.filters[0], *found.down.filters[:-1]]
        side = found.side // prod(half.strides)
        self.trainable_h = nn.Parameter(torch.zeros(1, half.filters[0], side, side))
        self.levels_down_upsample, self.levels_down = nn.ModuleList(), nn.ModuleList()
        for block, (into, stride) in enumerate(zip(before, half.strides, strict=True)):
            side, width = side * stride, half.filters[block]
            self.levels_down_upsample.append(Down(found, block, into, stride, side))
            more = range(half.n_blocks_per_res[block])
            self.levels_down.append(nn.ModuleList(Down(found, block, width, 1, side) for _ in more))
        self.output_conv = SameConv(half.filters[-1], 10 * found.mixtures, found.output_kernel)

    def blocks(self) -> list[tuple[int, Down]]:
        """Every block with the number of its level, in their order."""
        pairs = enumerate(zip(self.levels_down_upsample, self.levels_down, strict=True))
        return [(level, block) for level, (first, more) in pairs for block in (first, *more.children())]  # type: ignore[misc]


class HierarchicalAutoencoder(nn.Module):
    """An Efficient-VDVAE."""

    def __init__(self, found: Architecture) -> None:
        super().__init__()
        self.found = found
        self.bottom_up, self.top_down = Encoder(found), Decoder(found)
        self.shapes = [block.shape for _, block in self.top_down.blocks()]
        """Channels and sides of every group of latents, the coarsest first."""

    def infer(self, images: Tensor, noise: Callable[[int, tuple[int, ...]], Tensor] | None = None) -> list[Tensor]:
        """The posteriors' means, each found under those above it; with `noise`, draws.  # (N, 3, H, W) in [0, 1]"""
        grain = 2 ** (8 - self.found.bits)  # networks of fewer bits were trained on coarser values
        samples = images * 2 - 1 if grain == 1 else (images * 255 / grain).floor() * grain / 127.5 - 1
        skips, y, latents = self.bottom_up(samples), self._top(len(images)), []
        for place, (level, block) in enumerate(self.top_down.blocks()):

            def draw(
                posterior: Callable[[Tensor], Moments], place: int = place, level: int = level, block: Down = block
            ) -> Tensor:
                mean, spread = posterior(skips[level])
                latents.append(mean if noise is None else mean + spread * noise(place, block.shape))
                return latents[-1]

            y = block(y, draw)
        return latents

    def logits(self, latents: Sequence[Tensor]) -> Tensor:
        """The parameters of the mixture in every pixel.  # → (N, 10 × mixtures, H, W)"""
        y = self._top(len(latents[0]))
        for (_, block), latent in zip(self.top_down.blocks(), latents, strict=True):
            y = block(y, lambda posterior, latent=latent: latent)
        result: Tensor = self.top_down.output_conv(y)
        return result

    def decode(self, latents: Sequence[Tensor]) -> Tensor:
        """The mean of the mixture of logistics: green follows red, and blue both, within a component.  # → (N, 3, H, W)"""
        logits, number = self.logits(latents), self.found.mixtures
        chances = logits[:, :number].softmax(dim=1)  # (N, M, H, W)
        rest = logits[:, number:].unflatten(1, (3, 3, number))  # (N, colour, mean or scale or coefficient, M, H, W)
        means, factors = rest[:, :, 0], rest[:, :, 2].tanh()  # (N, 3, M, H, W)
        red = self._clamp(means[:, 0])
        green = self._clamp(means[:, 1] + factors[:, 0] * red)
        blue = self._clamp(means[:, 2] + factors[:, 1] * red + factors[:, 2] * green)
        return ((torch.stack([red, green, blue], dim=1) * chances[:, None]).sum(dim=2) + 1) / 2

    def _clamp(self, x: Tensor) -> Tensor:
        most = (256 - 2 ** (8 - self.found.bits)) / 127.5 - 1
        return straight_through(x.clamp(-1, most), x)

    def _top(self, count: int) -> Tensor:
        return self.top_down.trainable_h.expand(count, -1, -1, -1)


class HierarchyGenerator(LatentGenerator):
    """Moves the latents of chosen resolutions; the others stay as they were found."""

    autoencoder: Any

    def __init__(self, network: HierarchicalAutoencoder, levels: Sequence[int] | None, posterior: Posterior, sha256: str) -> None:
        super().__init__(network, size=network.found.side)  # type: ignore[arg-type]
        sides = sorted({side for _, side, _ in network.shapes})
        if unknown := sorted({*(levels or sides)} - {*sides}):
            raise BadSpec(f"levels: no latents of {unknown[0]} × {unknown[0]}; this network has {', '.join(map(str, sides))}")
        self.levels, self.posterior, self.sha256 = tuple(levels or sides), posterior, sha256
        self.moves = [side in self.levels for _, side, _ in network.shapes]

    @torch.no_grad()
    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        """Infer. A step of 1 is the standard deviation of the latents that move."""

        def noise(place: int, shape: tuple[int, ...]) -> Tensor:
            return normal(seeds, f"posterior {place}", *shape)

        found = self.autoencoder.infer(images, noise if self.posterior == "sample" else None)
        rows: dict[str, list[Tensor]] = {"latent": [], "still": []}
        for each, moves in zip(found, self.moves, strict=True):
            rows["latent" if moves else "still"].append(each.flatten(1).float())
        flat = {name: torch.cat(each, dim=1) for name, each in rows.items() if each}
        return {**flat, **latent_state(flat["latent"])}

    def render(self, state: State) -> Tensor:
        """Decode all groups; the clamp to [0, 1] is straight-through."""
        begin, latents = {"latent": 0, "still": 0}, []
        for shape, moves in zip(self.autoencoder.shapes, self.moves, strict=True):
            name, size = "latent" if moves else "still", prod(shape)
            latents.append(state[name][:, begin[name] : begin[name] + size].unflatten(1, shape))
            begin[name] += size
        decoded = self.autoencoder.decode(latents)
        return straight_through(decoded.clamp(0, 1), decoded)

    def provenance(self) -> dict[str, str]:
        """The checkpoint's hash, and which latents move."""
        latents = {"levels": " ".join(map(str, self.levels)), "posterior": self.posterior}
        return {**provenance_of(self.autoencoder), "weights": self.sha256, **latents}


def vdvae(
    rest: str, *, levels: tuple[int, ...] | None = None, posterior: Posterior = "mean", sha256: str | None = None
) -> HierarchyGenerator:
    """Latent ascent over a checkpoint of Efficient-VDVAE's authors, in a folder with its INI file (`*.cfg`).

    `levels` are the sides of the latents that move, by default all; `posterior` is where they begin: its `mean`, or a `sample`
    that stays; `sha256` is checked against the checkpoint.
    """
    folder = Path(rest).expanduser()
    configurations = sorted(folder.glob("*.cfg")) if folder.is_dir() else []
    if len(configurations) != 1:
        raise BadWeights(
            f"{folder}: holds {len(configurations)} files *.cfg; the checkpoint's own INI file has to be in its folder"
        )
    found = read_architecture(configurations[0])
    others = [file for file in sorted(folder.iterdir()) if file.is_file() and file.suffix in ("", ".pt", ".pth", ".safetensors")]
    if len(others) != 1:
        raise BadWeights(f"{folder}: holds {len(others)} checkpoints; leave the one that {configurations[0].name} belongs to")
    state = weights.load_state(others[0], sha256)
    network = HierarchicalAutoencoder(found)
    weights.load_into(network, state, what=str(others[0]))
    return HierarchyGenerator(network.eval().requires_grad_(False), levels, posterior, weights.file_sha256(others[0]))
