"""Plain transforms: each image gets the change of light, lens, weather, pose or storage that hurts the model most.

What moves is a row of severities in [0, 1], one per family. Severity 0 is the source image, to the last bit.

Gradients at severity 0. A family that is not yet at work leaves the image alone, so its gradient is taken along the chord
from the image to the family's first level (severity 0.2). It costs one rendering without a graph, is never zero for
want of a smooth parameter, and says what a real dose does, not an infinitesimal one. Above 0, families are
differentiated as they stand; `corruptions` says which of them are straight-through or blended.

The scale is such that a step is counted in severity: with search.unit `scale`, the default step of 0.1 moves a severity by 0.1,
and ten steps go through the whole range.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from counterfoil.core.errors import BadSpec
from counterfoil.parts.contracts import State
from counterfoil.parts.generators import draws
from counterfoil.parts.generators.corruptions import COMMON, FAMILIES, GROUPS, Family
from counterfoil.parts.generators.latent import straight_through

Choose = Literal["one", "all"]
FIRST = 0.2  # the severity whose chord stands for the gradient at 0
ALIASES: dict[str, tuple[str, ...]] = {**{name: tuple(group) for name, group in GROUPS.items()}, "imagenet-c": COMMON}


class TransformGenerator:
    """Changes images by families of transforms; the search moves their severities.

    With choose="one" a step moves one family, the one whose severity the signal raises most, by the whole length of the
    signal. At most `kinds` families are ever taken up for an image; from then on those keep growing, so a guided and a
    random image of as many steps differ in the family alone. Signs of gradients (search.norm `sign`) are all as long as
    each other: the tie goes to a family drawn from the image's seed. With choose="all" every severity follows the signal.
    """

    moving = "severity"
    step_size = 0.1  # of a severity
    size = None

    def __init__(self, families: Sequence[str] = tuple(FAMILIES), *, choose: Choose = "one", kinds: int = 1) -> None:
        if choose not in get_args(Choose):
            raise BadSpec(f"choose={choose!r}: choose is 'one' (a family a step) or 'all'")
        if kinds < 1:
            raise BadSpec(f"kinds={kinds}: an image needs at least one family of transforms; use 1 or more")
        self.families = resolve(families)
        self.choose, self.kinds = choose, kinds

    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        count = len(self.families)
        return {
            "severity": torch.zeros(len(images), count, device=images.device),
            "source": images.clone(),
            "seed": seeds.clone(),
            "scale": torch.full((len(images),), count**-0.5, device=images.device),
        }

    def render(self, state: State) -> Tensor:
        """Apply the families at work, in a fixed order; let those that could be taken up be felt in the gradient."""
        severity = state["severity"]  # (N, F)
        at_work = severity.detach() > 0
        felt = self._open(at_work) & ~at_work if severity.requires_grad else torch.zeros_like(at_work)
        rows = list(state["source"].split(1))
        for column, name in enumerate(self.families):
            for chosen, change in ((at_work, _apply), (felt, _feel)):
                for members in _batches(chosen[:, column]):
                    images = torch.cat([rows[row] for row in members])
                    doses = severity[members, column].reshape(-1, 1, 1, 1)
                    changed = change(FAMILIES[name], images, doses, state["seed"][members])
                    for row, image in zip(members, changed.split(1), strict=True):
                        rows[row] = image
        return torch.cat(rows)

    def step(self, state: State, signal: Tensor) -> State:
        """Raise the severity that the signal raises most, or with choose="all" move them all."""
        severity = state["severity"]
        if self.choose == "one":
            signal = self._steepest(severity, signal, state["seed"])
        return {**state, "severity": (severity + signal).clamp(0, 1)}

    def provenance(self) -> dict[str, str]:
        return {"families": ", ".join(self.families), "choose": self.choose, "kinds": str(self.kinds)}

    def _open(self, at_work: Tensor) -> Tensor:
        """The families that may move: all while there is room for another, then those at work.  # (N, F) → (N, F)"""
        if self.choose == "all":
            return torch.ones_like(at_work)
        return at_work | (at_work.sum(1, keepdim=True) < self.kinds)

    def _steepest(self, severity: Tensor, signal: Tensor, seeds: Tensor) -> Tensor:
        """The signal's whole length, upwards, in one coordinate."""
        movable = self._open(severity > 0) & (severity < 1)
        wanted = signal.masked_fill(~movable, -torch.inf)
        ties = wanted == wanted.amax(1, keepdim=True)
        order = draws.uniform(seeds, "ties", len(self.families)).masked_fill(~ties, -1)
        one = torch.zeros_like(signal).scatter(1, order.argmax(1, keepdim=True), 1.0)
        return torch.where(movable, one * signal.norm(dim=1, keepdim=True), 0.0)


def transforms(rest: str, *, families: Sequence[str] | None = None, choose: Choose = "one", kinds: int = 1) -> TransformGenerator:
    """Light, lens, weather, pose, noise and storage: each image gets the change that hurts the model most.

    `rest` names families or groups of them, as in `transforms:blur,fog`, or is empty for all; `families` is the same as a
    list. `kinds` is how many different families an image may get; choose="all" moves all of them at once.
    """
    asked = [name.strip() for name in rest.split(",") if name.strip()]
    if asked and families is not None:
        raise BadSpec(f"transforms:{rest} names families, and families={list(families)} does too; give one of them")
    if families is not None:
        asked = [families] if isinstance(families, str) else list(families)
        if not asked:
            raise BadSpec("families=[]: name at least one family of transforms, or leave it out for all")
    return TransformGenerator(asked or tuple(FAMILIES), choose=choose, kinds=kinds)


def resolve(names: Iterable[str]) -> tuple[str, ...]:
    """Families by name or group, each once, in the order in which they are applied."""
    asked: set[str] = set()
    for name in names:
        if name not in FAMILIES and name not in ALIASES:
            known = [*FAMILIES, *ALIASES]
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"they are {', '.join(known)}"
            raise BadSpec(f"no family of transforms named {name!r}; {hint}")
        asked.update(ALIASES.get(name, (name,)))
    return tuple(name for name in FAMILIES if name in asked)


def _apply(family: Family, images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """The images changed. An ordinary clamp: a few severities need true gradients, and no pixel is stuck by it."""
    return family(images, severity, seeds).clamp(0, 1)


def _feel(family: Family, images: Tensor, severity: Tensor, seeds: Tensor) -> Tensor:
    """The images as they are, with the gradient of the chord to the family's first level."""
    with torch.no_grad():
        first = _apply(family, images, torch.full_like(severity, FIRST), seeds)
        chord = (first - images) / FIRST
    return straight_through(images, images + severity * chord)


def _batches(chosen: Tensor) -> Iterator[list[int]]:
    """The rows that are chosen: together on a GPU, one by one on a CPU, where kernels round by the size of a batch."""
    members = chosen.nonzero().flatten().tolist()
    if chosen.device.type == "cpu":
        yield from ([row] for row in members)
    elif members:
        yield members
