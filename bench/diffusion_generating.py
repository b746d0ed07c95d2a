"""What bench/diffusion_speed.py times of the diffusion generator: ours, and a loop written from the paper."""

from __future__ import annotations

import copy
from typing import Any

import torch
from bench.diffusion_rows import Row, Scale, counted, row
from bench.plain_diffusion import climb
from torch import Tensor

from bench import stable_diffusion as sd
from counterfoil.engine.fast import Acceleration
from counterfoil.parts.fast.compiling import Compiled
from counterfoil.parts.generators.diffusion import Denoising, DiffusionGenerator, Process, UNetDenoiser
from counterfoil.testing import pictures

LEVELS = 10


class Generating:
    """Guided denoising of pictures: noised, and pushed up a loss on their way down ten levels."""

    def __init__(self, scale: Scale) -> None:
        self.scale, self.watch = scale, sd.Watch(scale.device)
        self.network = self._network(scale.device)
        still = self._network("meta")
        blank, time = torch.zeros(1, 3, scale.side, scale.side, device="meta"), torch.zeros(1, device="meta")

        def pushed() -> None:
            leaf = blank.clone().requires_grad_()
            still(leaf, time).sample.sum().backward()

        plain = counted(lambda: still(blank, time))
        # At each level a call with its gradient and one for every level left; between levels one that steps down.
        self.flops = LEVELS * counted(pushed) + (LEVELS * (LEVELS - 1) // 2 + LEVELS - 1) * plain

    def straightforward(self, batch: int) -> Row:
        """A loop over the network and its scheduler, in float32 as torch computes it unless told otherwise."""
        from diffusers import DDIMScheduler

        scheduler, network = DDIMScheduler(), copy.deepcopy(self.network)
        some = pictures(batch, self.scale.side).to(self.scale.device)

        def work(levels: int) -> None:
            climb(network, scheduler, some, top=self._top(), levels=levels, loss=self._loss, length=0.01)

        work(2)
        seconds, peak = self.watch(lambda: work(LEVELS))
        return row(seconds / batch, self.flops, batch, peak)

    def generator(self, *, compiled: bool) -> Row:
        """Ours, in the number format and with the compiler that the engine gives it on a GPU."""
        device, count = torch.device(self.scale.device), self.scale.drawn
        how = Acceleration("bf16")
        network = copy.deepcopy(self.network)
        if device.type == "cuda":
            network = network.to(memory_format=torch.channels_last)
        generator = DiffusionGenerator(UNetDenoiser(network, Process(self._kept())), Denoising(steps=LEVELS)).to(device)
        render = Compiled(generator.render, name="the generator") if compiled else generator.render
        some, labels = pictures(count, self.scale.side).to(device), torch.zeros(count, dtype=torch.long, device=device)

        def work(levels: int) -> None:
            with how.computing(device, low=False):
                state = generator.start(some, labels, torch.arange(count, device=device))
            for _ in range(levels):
                with how.computing(device):
                    leaf = state["noisy"].detach().requires_grad_()
                    (slope,) = torch.autograd.grad(self._loss(render({**state, "noisy": leaf})), leaf)
                    state = generator.step(state, 0.01 * slope.sign())

        warm, _ = self.watch(lambda: work(2))
        seconds, peak = self.watch(lambda: work(LEVELS))
        return row(seconds / count, self.flops, count, peak, warm_up_seconds=warm)

    def _loss(self, images: Tensor) -> Tensor:
        return (images * torch.linspace(-1, 1, self.scale.side, device=images.device)).sum()

    def _network(self, device: str) -> Any:
        from diffusers import UNet2DModel

        full = self.scale.side == 256
        widths, attended = ((128, 128, 256, 256, 512, 512), 4) if full else ((16, 32), 1)
        down = ["AttnDownBlock2D" if level == attended else "DownBlock2D" for level in range(len(widths))]
        torch.manual_seed(0)
        with torch.device(device):
            made = UNet2DModel(
                sample_size=self.scale.side,
                block_out_channels=widths,
                layers_per_block=2,
                down_block_types=tuple(down),
                up_block_types=tuple(name.replace("Down", "Up") for name in reversed(down)),
                norm_num_groups=32 if full else 8,
            )
        return made.eval().requires_grad_(False)

    def _kept(self) -> Tensor:
        from diffusers import DDIMScheduler

        kept: Tensor = DDIMScheduler().alphas_cumprod
        return kept

    def _top(self) -> int:
        return int(((1 - self._kept()).sqrt() - Denoising.strength).abs().argmin())
