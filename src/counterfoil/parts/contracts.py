"""The contracts between the engine and the parts it puts together.

Images at every seam are float32, NCHW, RGB, in [0, 1]. Each part does its own resizing and normalisation, and does it
differentiably where gradients have to pass. Every method treats rows independently: row i of the answer depends on
row i of the question alone. `counterfoil.testing` has a check for each contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

Part = TypeVar("Part")

State = dict[str, Tensor]
"""A generator's working state: named tensors, one row an image, so that rows can be dropped and refilled."""


@runtime_checkable
class Model(Protocol):
    """A classifier under test."""

    classes: Sequence[str]
    """Class names, in the order of the logits."""
    differentiable: bool
    """Whether gradients flow from `logits` back to the images. Black boxes say False and are searched without them."""

    def logits(self, images: Tensor) -> Tensor:
        """Scores before the softmax.  # (N, 3, H, W) → (N, K)"""
        ...


@runtime_checkable
class Generator(Protocol):
    """Makes pictures from a state and moves the state.

    The tensor `state[moving]` is what the search moves: gradients are taken with respect to it, and directions have its
    shape. `state["scale"]`, one number a row, is the natural length of a step of 1 in it.
    """

    moving: str
    """Name of the state's tensor that is searched."""
    size: int | None
    """Side of the square pictures it works on, or None for any size."""

    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        """The state whose rendering is the plain reconstruction of `images`.  # labels, seeds: (N,) int64"""
        ...

    def render(self, state: State) -> Tensor:
        """The pictures of a state, differentiable in `state[moving]`.  # → (N, 3, H, W) in [0, 1]"""
        ...

    def step(self, state: State, signal: Tensor) -> State:
        """The state moved along `signal`, which has the shape of `state[moving]` and already the wanted length."""
        ...


@dataclass(frozen=True)
class Verdicts:
    """An oracle's answer for a batch."""

    keeps_label: Tensor  # (N,) int8: 1 the label holds, 0 it does not, -1 the oracle abstains
    scores: Tensor  # (N,) float32, the oracle's score for the label
    predicted: Tensor  # (N,) int64, the class it sees, in the classes it was bound to; -1 if it names none


@runtime_checkable
class Oracle(Protocol):
    """Says whether a picture still shows its class."""

    def bind(self, classes: Sequence[str]) -> Oracle:
        """The oracle ready to judge labels that index `classes`; does once what need not be done per batch."""
        ...

    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        """Verdicts on whether each picture shows its label.  # (N, 3, H, W), (N,) int64"""
        ...


@dataclass(frozen=True)
class Sample:
    """One labelled picture of a data set, read when `load` is called."""

    image_id: str  # unique within the data set and stable from run to run
    label: int
    source: str  # where it came from, for people
    caption: str = ""  # what it shows in words, where the data set says so
    place: str = ""  # where its bytes are, for the data set's reader, if the source does not say it


@runtime_checkable
class Reader(Protocol):
    """Reads pictures of a data set, and does not know which there are. Workers on other machines get one, pickled."""

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The picture, square with side `size` if given; raises BadImage if it can't be used.  # (3, H, W)"""
        ...


@runtime_checkable
class Dataset(Protocol):
    """Labelled pictures, listed cheaply and read one by one."""

    classes: Sequence[str]

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Sample]:
        """The samples in a fixed order, without reading a picture."""
        ...

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The picture, square with side `size` if given; raises BadImage if it can't be used.  # (3, H, W)"""
        ...


@dataclass(frozen=True)
class Caption:
    """What a captioner says of a picture, or why it says nothing."""

    text: str
    problem: str = ""  # why there is no caption that can be used; empty if all is well


@runtime_checkable
class Captioner(Protocol):
    """Describes pictures in words."""

    def caption(self, images: Tensor, samples: Sequence[Sample]) -> list[Caption]:
        """One caption a picture; `samples` say which pictures they are, for captions that were written down before."""
        ...


@dataclass(frozen=True)
class Wish:
    """What a rewriter is asked for: this caption with this factor changed."""

    caption: str
    factor: str  # one of counterfoil.parts.language.factors.FACTORS
    seed: int = 0  # the same wish with the same seed gets the same answer


@dataclass(frozen=True)
class Edit:
    """A caption with one factor rewritten, and checked to be so."""

    factor: str
    caption: str
    removed: str  # the words that were taken out; empty for a pure insertion
    added: str


@dataclass(frozen=True)
class Rejection:
    """A proposal that is not used, and why."""

    factor: str
    proposal: str  # the text as it came; empty where nothing came
    reason: str  # one of counterfoil.parts.language.factors.REASONS
    detail: str = ""  # for people


@dataclass(frozen=True)
class Proposals:
    """A rewriter's answer to one wish: captions as it wrote them, unchecked, and what it already knows to be useless."""

    captions: tuple[str, ...] = ()
    rejections: tuple[Rejection, ...] = ()


@runtime_checkable
class Rewriter(Protocol):
    """Rewrites one factor of a caption."""

    def rewrite(self, wishes: Sequence[Wish]) -> list[Proposals]:
        """The captions it proposes, one answer a wish; row i depends on wish i alone."""
        ...


@dataclass(frozen=True)
class Inversion:
    """What an editor found out about one picture: enough to draw it again, and to draw it differently."""

    caption: str
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class Edited:
    """One picture redrawn, in as many ways as the editor sweeps over."""

    candidates: Tensor  # (S, 3, H, W), in the order of the editor's `sweep`
    reconstruction: Tensor  # (3, H, W): what inversion and redrawing do to the picture without an edit


@dataclass(frozen=True)
class Refused:
    """Why a row could not be worked on: counted, and the others go on."""

    reason: str


@runtime_checkable
class Editor(Protocol):
    """Changes a picture so that it fits an edited caption, in two halves so that the costly one is done once an image."""

    size: int | None
    """Side of the square pictures it works on, or None for any size."""
    sweep: Sequence[str]
    """The settings it tries for every edit, one candidate each, as in ("self_replace=0.4", "self_replace=0.6")."""

    def invert(self, images: Sequence[Tensor], captions: Sequence[str], seeds: Sequence[int]) -> list[Inversion | Refused]:
        """One inversion a picture, from the picture, its caption and its seed alone; what is not (3, H, W) is refused."""
        ...

    def edit(self, inversions: Sequence[Inversion], edited: Sequence[str]) -> list[Edited | Refused]:
        """The pictures redrawn to the edited captions; one picture's inversion may stand in many rows. No words: refused."""
        ...


@runtime_checkable
class Painter(Protocol):
    """Paints a picture from words."""

    def paint(self, prompts: Sequence[str], seeds: Tensor) -> Tensor:
        """One picture a prompt.  # (N, 3, H, W)"""
        ...


def to_device(part: Part, device: torch.device | str) -> Part:
    """The part on a device, if it can be moved."""
    move: Callable[[torch.device | str], Part] | None = getattr(part, "to", None)
    return part if move is None else move(device)


def reader_of(dataset: Dataset) -> Reader | None:
    """What reads a data set's pictures without the data set: its `reader()`, if it has one."""
    reader: Reader | None = dataset.reader() if hasattr(dataset, "reader") else None
    return reader


def provenance_of(part: Any) -> dict[str, str]:
    """What a part says of itself for `run.json`: nothing, if it does not."""
    account: dict[str, str] = part.provenance() if hasattr(part, "provenance") else {}
    return account
