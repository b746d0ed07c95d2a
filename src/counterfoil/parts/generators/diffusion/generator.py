"""Guided denoising: a picture is noised a little and, on its way back, pushed towards what the tested model gets wrong.

What moves is the noisy picture. It starts at the noise level `strength` and comes down a ladder of `steps` levels to
none. One step of Algorithm 1 adds the signal to the noisy picture at its present level and then takes one deterministic
denoising step (DDIM) to the next level: early steps change what is in the picture, late ones its texture, and the
budget is spread over the levels. With `moves` greater than 1 that many steps are made at a level before it is left, so a
search with budget B wants steps × moves = B. Once at the lowest level, further steps are made there.

A rendering is always a finished picture: the noisy one taken down the rest of the ladder without guidance. So

- the plain reconstruction is the picture noised and denoised without any guidance,
- a step along nothing changes nothing, and all that changes is owed to the signal,
- model and oracle never see a half-denoised, blurred picture.

The exact gradient of a rendering goes back through the network once for every level left (`gradient="chain"`). The
default, `gradient="guess"`, goes back once: through the guess of the clean picture made at the present level, as in
diffusion posterior sampling. At the lowest level the two are the same.

The natural length of a step is the standard deviation of the noise at the present level. What is much shorter than
the noise, and not like a picture, the network takes out again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar, get_args

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from counterfoil.core.errors import BadSpec
from counterfoil.parts.contracts import State
from counterfoil.parts.generators import draws
from counterfoil.parts.generators.diffusion.process import Denoiser, Ladder, mix
from counterfoil.parts.generators.straight import straight_through

Noising = Literal["random", "inversion"]
"""`random`: noise drawn from the picture's seed. `inversion`: the noise that denoises back to the picture, found by running
the denoising steps backwards; the reconstruction is then much closer to the source."""
Gradient = Literal["guess", "chain"]
Work = TypeVar("Work", bound=Callable[..., Any])


def _only_what_it_calls(work: Work) -> Work:
    """A function that a compiler leaves alone, though not what it calls."""
    left: Work = torch.compiler.disable(work, recursive=False)
    return left


@dataclass(frozen=True)
class Denoising:
    """How pictures are noised and denoised."""

    strength: float = 0.4  # standard deviation of the noise at the start, in a picture of unit range
    steps: int = 10
    moves: int = 1
    noising: Noising = "random"
    gradient: Gradient = "guess"

    def __post_init__(self) -> None:
        if self.moves < 1:
            raise BadSpec(f"moves={self.moves}: at least one step is made at a level")
        for name, given, known in (("noising", self.noising, Noising), ("gradient", self.gradient, Gradient)):
            if given not in get_args(known):
                raise BadSpec(f"no {name} named {given!r}; it is {' or '.join(map(repr, get_args(known)))}")


class DiffusionGenerator:
    """Moves pictures while a diffusion model denoises them.

    Whoever compiles `render` has the network compiled and not the ladder around it, which is of another length at every level.
    """

    moving = "noisy"
    step_size = 0.03

    def __init__(
        self, denoiser: Denoiser, denoising: Denoising | None = None, *, class_numbers: Sequence[int] | None = None
    ) -> None:
        """`class_numbers[c]` is the network's number for the run's class `c`; by default the same number."""
        self.denoiser, self.size = denoiser, denoiser.size
        self.denoising = denoising or Denoising()
        self.ladder = Ladder.down_from(self.denoising.strength, self.denoising.steps, denoiser.process)
        self.class_numbers = None if class_numbers is None else torch.tensor(list(class_numbers))

    @torch.no_grad()
    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        """The pictures at the top of the ladder."""
        classes = self._classes(labels)
        level = torch.zeros_like(classes)
        if self.denoising.noising == "inversion":
            noisy = self._invert(images * 2 - 1, classes)
        else:
            noise = draws.normal(seeds, "diffusion", *images.shape[1:])
            noisy = mix(images * 2 - 1, noise, self.ladder.kept_at(level))
        return {"noisy": noisy, "level": level, "moves": torch.zeros_like(level), "class": classes, "scale": self._scale(level)}

    @_only_what_it_calls
    def render(self, state: State) -> Tensor:
        """Take the pictures down the rest of the ladder."""
        level, classes = state["level"], state["class"]
        clean, noise = self._look(state["noisy"], level, classes)
        if self.denoising.gradient == "chain":
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
        leaves = (moves >= self.denoising.moves) & (level < self.ladder.last)  # (N,)
        if leaves.any():
            clean, noise = self._look(noisy, level, classes)
            below = torch.where(leaves, level + 1, level)
            noisy = torch.where(leaves.reshape(-1, 1, 1, 1), mix(clean, noise, self.ladder.kept_at(below)), noisy)
            level, moves = below, torch.where(leaves, 0, moves)
        return {**state, "noisy": noisy, "level": level, "moves": moves, "scale": self._scale(level)}

    def to(self, device: torch.device | str) -> Self:
        """Move the network."""
        self.denoiser.to(device)
        self.ladder = self.ladder.to(device)
        if self.class_numbers is not None:
            self.class_numbers = self.class_numbers.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """The network's own account, and how pictures are noised and denoised."""
        return {**self.denoiser.provenance(), "denoising": repr(self.denoising)}

    @_only_what_it_calls
    def _look(self, noisy: Tensor, level: Tensor, classes: Tensor) -> tuple[Tensor, Tensor]:
        """The clean picture and the noise that the network sees in noisy ones."""
        times = self.ladder.times[level]
        if noisy.requires_grad and self.denoising.gradient == "chain":  # one network's activations at a time, not the chain's
            guess = checkpoint(self.denoiser.guess, noisy, times, classes, use_reentrant=False)
        else:
            guess = self.denoiser.guess(noisy, times, classes)
        return self.denoiser.process.split(guess.float(), noisy, self.ladder.kept_at(level))

    @_only_what_it_calls
    def _finish(self, clean: Tensor, noise: Tensor, *, level: Tensor, classes: Tensor) -> Tensor:
        """The clean pictures at the foot of the ladder. Rows may stand at different levels; one that has arrived waits."""
        for _ in range(self.ladder.last - int(level.min())):
            goes = (level < self.ladder.last).reshape(-1, 1, 1, 1)
            level = (level + 1).clamp(max=self.ladder.last)
            later = self._look(mix(clean, noise, self.ladder.kept_at(level)), level, classes)
            clean, noise = (torch.where(goes, after, before) for after, before in zip(later, (clean, noise), strict=True))
        return clean

    def _invert(self, samples: Tensor, classes: Tensor) -> Tensor:
        """The noisy pictures at the top of the ladder that denoising leads back from, about."""
        noisy, process = samples, self.denoiser.process
        time, kept = torch.zeros_like(classes), process.kept[:1].to(samples.device).reshape(1, 1, 1, 1)
        for rung in range(self.ladder.last, -1, -1):
            clean, noise = process.split(self.denoiser.guess(noisy, time, classes).float(), noisy, kept)
            level = torch.full_like(classes, rung)
            time, kept = self.ladder.times[level], self.ladder.kept_at(level)
            noisy = mix(clean, noise, kept)
        return noisy

    def _scale(self, level: Tensor) -> Tensor:
        return (1 - self.ladder.kept[level]).sqrt()

    def _classes(self, labels: Tensor) -> Tensor:
        """The network's numbers for the pictures' labels; zeros where it knows of no classes.  # (N,) → (N,)"""
        if self.denoiser.classes is None:
            return torch.zeros_like(labels)
        known = self.denoiser.classes if self.class_numbers is None else len(self.class_numbers)
        if len(labels) and int(labels.max()) >= known:
            raise BadSpec(
                f"class {int(labels.max())} of the data has no number in the network; give class_numbers, a list with the "
                f"network's number (0 to {self.denoiser.classes - 1}) for each class of the data"
            )
        numbers = labels if self.class_numbers is None else self.class_numbers[labels]
        if len(numbers) and not 0 <= int(numbers.min()) <= int(numbers.max()) < self.denoiser.classes:
            raise BadSpec(f"class_numbers: the network's classes are numbered 0 to {self.denoiser.classes - 1}")
        return numbers
