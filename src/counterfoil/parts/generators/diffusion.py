"""Guided denoising: an image is noised a little and, on its way back, pushed towards what the tested model gets wrong.

What moves is the noisy image. It starts at the noise level `strength` and comes down a ladder of `steps` levels to
none. One step of Algorithm 1 adds the signal to the noisy image at its present level and then takes one deterministic
denoising step (DDIM) to the next level: early steps change what is in the image, late ones its texture, and the
budget is spread over the levels. With `steps_per_level` greater than 1 that many steps are made at a level before it is left, so
a search with budget B wants steps × steps_per_level = B. Once at the lowest level, further steps are made there.

A rendering is always a finished image: the noisy one taken down the rest of the ladder without guidance. So

- the plain reconstruction is the image noised and denoised without any guidance,
- a step along nothing changes nothing, and all that changes is owed to the signal,
- model and oracle never see a half-denoised, blurred image.

The exact gradient of a rendering goes back through the network once for every level left (`gradient="full"`). The
default, `gradient="one-step"`, goes back once: through the guess of the clean image made at the present level, as in
diffusion posterior sampling. At the lowest level the two are the same.

The natural length of a step is the standard deviation of the noise at the present level. What is much shorter than
the noise, and not like an image, the network takes out again.

The arithmetic is that of Ho et al., 2020. A noisy image is √a · clean + √(1 − a) · noise, where a, the share of the signal that
is left, falls with time. Images are in [-1, 1]. A network predicts the noise, the clean image, or the mixture of both called
v; from any of them and the noisy image the other two follow.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from counterfoil.core.errors import BadPart, BadSpec, BadWeights
from counterfoil.parts import imagenet, pretrained, weights
from counterfoil.parts.contracts import Movable, State
from counterfoil.parts.fast import unets
from counterfoil.parts.generators import draws
from counterfoil.parts.generators.latent import straight_through

Noising = Literal["random", "inversion"]
"""`random`: noise drawn from the image's seed. `inversion`: the noise that denoises back to the image, found by running
the denoising steps backwards; the reconstruction is then much closer to the source."""
Gradient = Literal["one-step", "full"]
"""`one-step`: back through the prediction at the present level. `full`: back through every level left, which costs more."""
Work = TypeVar("Work", bound=Callable[..., Any])
Prediction = Literal["epsilon", "sample", "v_prediction"]


@dataclass(frozen=True)
class Process:
    """The training of a network: the signal left at each time, what it guesses, and the range of clean images."""

    alphas_cumprod: Tensor  # (T,) float32, the signal left at each time, falling from about 1
    prediction: Prediction = "epsilon"
    limit: float | None = 1.0  # guesses of clean images are cut to ±limit

    def __post_init__(self) -> None:
        if self.prediction not in get_args(Prediction):
            raise BadPart(f"a network that predicts {self.prediction!r}: it has to be one of {', '.join(get_args(Prediction))}")

    def split(self, guess: Tensor, noisy: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
        """The clean image and the noise that a guess makes of a noisy image.  # (N, 3, H, W) twice, (N, 1, 1, 1)"""
        signal, spread = kept.sqrt(), (1 - kept).sqrt()
        if self.prediction == "epsilon":
            clean = (noisy - spread * guess) / signal
        elif self.prediction == "v_prediction":
            clean = signal * noisy - spread * guess
        else:
            clean = guess
        if self.limit is not None:
            clean = straight_through(clean.clamp(-self.limit, self.limit), clean)
        return clean, (noisy - signal * clean) / spread


def add_noise(clean: Tensor, noise: Tensor, kept: Tensor) -> Tensor:
    """A clean image and noise at the level where `kept` of the signal is left.  # kept: (N, 1, 1, 1)"""
    return kept.sqrt() * clean + (1 - kept).sqrt() * noise


class Denoiser(pretrained.Network):
    """A trained network with the process it was trained for."""

    process: Process
    size: int  # side of its images
    classes: int | None  # the number of classes it is conditioned on

    def predict(self, noisy: Tensor, times: Tensor, classes: Tensor) -> Tensor:
        """The network's prediction for noisy images.  # (N, 3, H, W), (N,) int64, (N,) int64 → (N, 3, H, W)"""
        raise NotImplementedError

    def accelerate(self, dtype: torch.dtype) -> Self:
        """The same with a copy of the network that computes in `dtype`, in fused layers on a GPU."""
        network = nn.Module.to(copy.deepcopy(self.network), dtype=dtype)
        device = next(network.parameters()).device
        if device.type == "cuda":
            network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        unets.fuse_on(network, device, dtype)
        changed = copy.copy(self)
        changed.network = network
        return changed

    @contextlib.contextmanager
    def in_own_dtype(self, noisy: Tensor) -> Iterator[Tensor]:
        """Images in the network's dtype; one of low precision is not put under autocast on top."""
        own = next(self.network.parameters()).dtype
        with contextlib.nullcontext() if own == torch.float32 else torch.autocast(noisy.device.type, enabled=False):
            yield noisy.to(own)


@dataclass(frozen=True)
class NoiseLevels:
    """The noise levels that images are taken down by, the noisiest first."""

    times: Tensor  # (S,) int64
    kept: Tensor  # (S,) float32

    @classmethod
    def down_from(cls, strength: float, steps: int, process: Process) -> NoiseLevels:
        """`steps` levels, even in time, from where the noise has the standard deviation `strength`."""
        if not 0 < strength < 1:
            raise BadSpec(f"strength={strength}: the share of noise at the start lies between 0 and 1, both excluded")
        if steps < 1:
            raise BadSpec(f"steps={steps}: denoising takes at least one step")
        top = int(((1 - process.alphas_cumprod).sqrt() - strength).abs().argmin())
        if steps > top + 1:
            raise BadSpec(f"steps={steps}: strength {strength} is only {top + 1} of the network's own steps up; take fewer")
        times = torch.tensor([round((top + 1) * (steps - step) / steps) - 1 for step in range(steps)])
        return cls(times, process.alphas_cumprod[times])

    @property
    def last(self) -> int:
        """The number of the level with the least noise."""
        return len(self.times) - 1

    def to(self, device: torch.device | str) -> NoiseLevels:
        return NoiseLevels(self.times.to(device), self.kept.to(device))

    def kept_at(self, level: Tensor) -> Tensor:
        """The share of the signal left at levels, shaped to broadcast over images.  # (N,) → (N, 1, 1, 1)"""
        return self.kept[level].reshape(-1, 1, 1, 1)


def _only_what_it_calls(work: Work) -> Work:
    """A function that a compiler leaves alone, though not what it calls."""
    left: Work = torch.compiler.disable(work, recursive=False)
    return left


@dataclass(frozen=True)
class Denoising:
    """Options of noising and denoising."""

    strength: float = 0.4  # standard deviation of the noise at the start, in an image of unit range
    steps: int = 10  # noise levels
    steps_per_level: int = 1  # of the search
    noising: Noising = "random"
    gradient: Gradient = "one-step"

    def __post_init__(self) -> None:
        if self.steps_per_level < 1:
            raise BadSpec(f"steps_per_level={self.steps_per_level}: at least one step is made at a level")
        for name, given, known in (("noising", self.noising, Noising), ("gradient", self.gradient, Gradient)):
            if given not in get_args(known):
                raise BadSpec(f"no {name} named {given!r}; it is {' or '.join(map(repr, get_args(known)))}")


class DiffusionGenerator(Movable):
    """Moves images while a diffusion model denoises them.

    A compiled `render` has the network compiled and not the ladder around it, which is of another length at every level.
    """

    moving = "noisy"
    step_size = 0.03
    reads_back = True  # at which levels the images are

    def __init__(self, denoiser: Denoiser, denoising: Denoising | None = None, *, classes: Sequence[str] | None = None) -> None:
        """`classes` are the names of the network's classes, where it is class-conditional; labels are its own numbers."""
        self.denoiser, self.size = denoiser, denoiser.size
        self.exact = denoiser  # for the start, in float32
        self.denoising = denoising or Denoising()
        self.levels = NoiseLevels.down_from(self.denoising.strength, self.denoising.steps, denoiser.process)
        self.classes = classes

    @torch.no_grad()
    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        """The images at the top of the ladder."""
        classes = self._classes(labels)
        level = torch.zeros_like(classes)
        if self.denoising.noising == "inversion":
            noisy = self._invert(images * 2 - 1, classes)
        else:
            noise = draws.normal(seeds, "diffusion", *images.shape[1:])
            noisy = add_noise(images * 2 - 1, noise, self.levels.kept_at(level))
        return {"noisy": noisy, "level": level, "moves": torch.zeros_like(level), "class": classes, "scale": self._scale(level)}

    @_only_what_it_calls
    def render(self, state: State) -> Tensor:
        """Take the images down the rest of the ladder."""
        level, classes = state["level"], state["class"]
        clean, noise = self._look(state["noisy"], level, classes)
        if self.denoising.gradient == "full":
            finished = self._finish(clean, noise, level=level, classes=classes)
        else:
            with torch.no_grad():
                value = self._finish(clean.detach(), noise.detach(), level=level, classes=classes)
            finished = straight_through(value, clean)
        images = (finished + 1) / 2
        return straight_through(images.clamp(0, 1), images)

    @torch.no_grad()
    def step(self, state: State, signal: Tensor) -> State:
        """Add the signal; where the moves at a level are used up, denoise to the next one."""
        noisy, level, classes = state["noisy"] + signal, state["level"], state["class"]
        moves = state["moves"] + 1
        leaves = (moves >= self.denoising.steps_per_level) & (level < self.levels.last)  # (N,)
        if leaves.any():
            clean, noise = self._look(noisy, level, classes)
            below = torch.where(leaves, level + 1, level)
            noisy = torch.where(leaves.reshape(-1, 1, 1, 1), add_noise(clean, noise, self.levels.kept_at(below)), noisy)
            level, moves = below, torch.where(leaves, 0, moves)
        return {**state, "noisy": noisy, "level": level, "moves": moves, "scale": self._scale(level)}

    def accelerate(self, dtype: torch.dtype) -> Self | None:
        """The same with a network that computes in `dtype`, but for the start; None where the denoiser has none."""
        make = getattr(self.denoiser, "accelerate", None)
        if make is None:
            return None
        changed = copy.copy(self)
        changed.denoiser = make(dtype)
        return changed

    def provenance(self) -> dict[str, str]:
        return {**self.denoiser.provenance(), "denoising": repr(self.denoising)}

    @_only_what_it_calls
    def _look(self, noisy: Tensor, level: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """The clean image and the noise that the network sees in noisy ones."""
        times = self.levels.times[level]
        if noisy.requires_grad and self.denoising.gradient == "full":  # one network's activations at a time, not the chain's
            guess = checkpoint(self.denoiser.predict, noisy, times, classes, use_reentrant=False)
        else:
            guess = self.denoiser.predict(noisy, times, classes)
        return self.denoiser.process.split(guess.float(), noisy, self.levels.kept_at(level))

    @_only_what_it_calls
    def _finish(self, clean: Tensor, noise: Tensor, *, level: Tensor, classes: Tensor) -> Tensor:
        """The clean images at the foot of the ladder. Rows may stand at different levels; one that has arrived waits."""
        for _ in range(self.levels.last - int(level.min())):
            goes = (level < self.levels.last).reshape(-1, 1, 1, 1)
            level = (level + 1).clamp(max=self.levels.last)
            later = self._look(add_noise(clean, noise, self.levels.kept_at(level)), level, classes)
            clean, noise = (torch.where(goes, after, before) for after, before in zip(later, (clean, noise), strict=True))
        return clean

    def _invert(self, samples: Tensor, classes: Tensor) -> Tensor:
        """The noisy images at the top of the ladder that denoising leads back from, about."""
        noisy, process = samples, self.denoiser.process
        time, kept = torch.zeros_like(classes), process.alphas_cumprod[:1].to(samples.device).reshape(1, 1, 1, 1)
        for rung in range(self.levels.last, -1, -1):
            clean, noise = process.split(self.exact.predict(noisy, time, classes).float(), noisy, kept)
            level = torch.full_like(classes, rung)
            time, kept = self.levels.times[level], self.levels.kept_at(level)
            noisy = add_noise(clean, noise, kept)
        return noisy

    def _scale(self, level: Tensor) -> Tensor:
        return (1 - self.levels.kept[level]).sqrt()

    def _classes(self, labels: Tensor) -> Tensor:
        """The network's classes of the images; zeros where it knows of none.  # (N,) → (N,)"""
        return torch.zeros_like(labels) if self.denoiser.classes is None else labels


def class_names(given: Sequence[str] | str | None, count: int | None, *, what: str) -> list[str] | None:
    """The names of a class-conditional network's `count` classes, by which labels of the data are matched to its numbers."""
    if count is None:
        if given is not None:
            raise BadSpec(f"{what}: classes are given, but the network knows of none; leave them out")
        return None
    if given == "imagenet":
        given = imagenet.names_and_aliases()[0]
    if given is None or isinstance(given, str):
        raise BadSpec(
            f"{what}: the network is told {count} classes by number, and their names are not known; give them in its order, "
            "as in classes: [cat, dog], or classes: imagenet"
        )
    if len(given) != count or len(set(given)) != count:
        raise BadSpec(f"{what}: {len(set(given))} different class names given for {count} classes of the network")
    return list(given)


SCHEDULER = "scheduler_config.json"
FILES = [
    *(f"{folder}{SCHEDULER}" for folder in ("", "scheduler/")),
    *(f"{folder}{name}" for folder in ("", "unet/") for name in (pretrained.CONFIG, pretrained.DIFFUSERS_WEIGHTS)),
]
"""A pipeline keeps its network and its scheduler in folders of their own; old ones keep both at the top."""


class UNetDenoiser(Denoiser):
    """A diffusers UNet2DModel."""

    def __init__(self, network: Any, process: Process, *, sha256: str = "") -> None:
        super().__init__(network, sha256=sha256)
        self.process = process
        self.size = int(network.config.sample_size)
        self.classes: int | None = network.config.num_class_embeds if network.class_embedding is not None else None

    def predict(self, noisy: Tensor, times: Tensor, classes: Tensor) -> Tensor:
        """The network's answer; a learned variance is left out."""
        labels = None if self.classes is None else classes
        with self.in_own_dtype(noisy) as images:
            answer: Tensor = self.network(images, times, class_labels=labels).sample[:, :3]
        return answer

    def provenance(self) -> dict[str, str]:
        return {**super().provenance(), "prediction": self.process.prediction}


def diffusion(
    rest: str,
    *,
    strength: float = Denoising.strength,
    steps: int = Denoising.steps,
    steps_per_level: int = Denoising.steps_per_level,
    noising: Noising = Denoising.noising,
    gradient: Gradient = Denoising.gradient,
    classes: Sequence[str] | str | None = None,
    sha256: str | None = None,
    revision: str | None = None,
) -> DiffusionGenerator:
    """Guided denoising with a diffusers UNet2DModel (DDPM and DDIM pipelines), from a folder or the hub.

    Images are noised to `strength` and taken back down in `steps` levels with `steps_per_level` guided steps at each, so a
    search wants the budget steps × steps_per_level. `noising` is random or inversion; `gradient` is one-step or, at a multiple of
    the cost, full. `classes` are the names of a class-conditional network's classes in its own order, or "imagenet".
    """
    denoising = Denoising(strength=strength, steps=steps, steps_per_level=steps_per_level, noising=noising, gradient=gradient)
    folder = weights.hub_folder(rest, FILES, revision=revision)
    nested = folder / "unet"
    found = pretrained.open_checkpoint(nested if nested.is_dir() else folder)
    _check(found)
    process = read_scheduler(folder)
    denoiser = UNetDenoiser(found.load(sha256), process, sha256=weights.file_sha256(found.weights))
    return DiffusionGenerator(denoiser, denoising, classes=class_names(classes, denoiser.classes, what=f"diffusion:{rest}"))


def read_scheduler(folder: Path) -> Process:
    """The process that the scheduler in a pipeline's folder describes."""
    from diffusers import DDIMScheduler

    path = next((place for place in (folder / "scheduler" / SCHEDULER, folder / SCHEDULER) if place.is_file()), None)
    if path is None:
        raise BadWeights(f"{folder}: no {SCHEDULER} in it or in its folder scheduler; give the folder of a whole pipeline")
    config = pretrained.read_config(path)
    if not {"beta_schedule", "beta_start", "trained_betas"} & set(config):
        raise BadPart(f"{path}: describes no noise by betas; schedulers of the DDPM and DDIM family can be used")
    # Only the settings of training count, and schedulers of that family write them alike: how to sample is decided here.
    scheduler = DDIMScheduler.from_config(config)
    limit = float(scheduler.config.clip_sample_range) if scheduler.config.clip_sample else None
    return Process(scheduler.alphas_cumprod.float(), scheduler.config.prediction_type, limit)


def _check(found: pretrained.Checkpoint) -> None:
    config = found.config
    if config.get("_class_name") != "UNet2DModel":
        raise BadPart(f"{found.folder}: config.json names the class {config.get('_class_name')!r}; a UNet2DModel is needed")
    if config.get("in_channels", 3) != 3 or config.get("out_channels", 3) not in (3, 6):
        raise BadPart(
            f"{found.folder}: takes {config.get('in_channels')} channels and gives {config.get('out_channels')}; "
            "images have three, and six are three with their variance"
        )
    if not isinstance(config.get("sample_size"), int):
        raise BadPart(f"{found.folder}: sample_size is {config.get('sample_size')!r}; the side of its square images is needed")
    if config.get("class_embed_type") is not None or config.get("time_embedding_type", "positional") != "positional":
        raise BadPart(f"{found.folder}: classes or times are embedded in another way than the DDPM family's; it cannot be used")
