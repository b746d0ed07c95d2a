"""Contracts of the parts, and what parts hand each other.

Images at every seam are float32, NCHW, RGB, in [0, 1]. Each part does its own resizing and normalisation, differentiably
where gradients have to pass. Every method treats rows independently: row i of the answer depends on row i of the question
alone. `counterfoil.testing` has a check for each contract.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar, runtime_checkable

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart

Part = TypeVar("Part")

State = dict[str, Tensor]
"""A generator's working state: named tensors, one row per image, so that rows can be dropped and refilled."""


@runtime_checkable
class Model(Protocol):
    """A classifier under test."""

    classes: Sequence[str]
    """Class names, in the order of the logits."""
    differentiable: bool
    """True if gradients flow from `logits` back to the images. Black boxes are searched without gradients."""

    def logits(self, images: Tensor) -> Tensor:
        """Scores before the softmax.  # (N, 3, H, W) → (N, K)"""
        ...


@runtime_checkable
class Generator(Protocol):
    """Makes images from a state and moves the state.

    The tensor `state[moving]` is what the search moves: gradients are taken with respect to it, and directions have its
    shape. `state["scale"]`, one number per row, is the natural length of a step of 1 in it.
    """

    moving: str
    """Name of the state's tensor that is searched."""
    size: int | None
    """Side of the square images it works on, or None for any size."""
    step_size: float
    """Default length of a search step, in `state["scale"]`."""
    # Optional, `classes`: names of its own class numbers. A class-conditional generator that has them gets labels in these
    # numbers; the data's classes are matched by name.
    # Optional, `accelerate(dtype)`: the same generator with layers that compute in that dtype, or None. Its `render` launches
    # kernels and reads nothing back, so that a step can be captured as a CUDA graph, unless it has `reads_back = True`; `start`
    # stays in float32.

    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        """The state whose rendering is the plain reconstruction of `images`.  # labels, seeds: (N,) int64"""
        ...

    def render(self, state: State) -> Tensor:
        """The images of a state, differentiable in `state[moving]`.  # → (N, 3, H, W) in [0, 1]"""
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
    """Judges if an image still shows its class."""

    # Optional, `cross_fitted`: True for an oracle that is fitted on the run's own images. It has `fitted`; `fit(dataset, size=,
    # device=)`, called once it is bound unless it is fitted, which gives the fitted oracle; `heads(image_ids)`, the head that
    # has not seen each source; and `judge(images, labels, heads)`.

    def bind(self, classes: Sequence[str]) -> Oracle:
        """The oracle ready to judge labels that index `classes`; does once what need not be done per batch."""
        ...

    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        """A verdict per image on its label.  # (N, 3, H, W), (N,) int64"""
        ...


@dataclass(frozen=True)
class Sample:
    """One labelled image of a data set, read when `load` is called."""

    image_id: str  # unique within the data set and stable from run to run
    label: int
    source: str  # where it came from, for people
    caption: str = ""  # what it shows in words, where the data set has a caption
    place: str = ""  # where its bytes are, for the data set's reader, if the source does not say it
    factor: str = ""  # what was done to it, where the data set says so: a corruption, a style …
    value: str = ""  # and how much or which


@runtime_checkable
class Reader(Protocol):
    """Reads images of a data set without knowing which there are. Workers on other machines get one, pickled."""

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The image, square with side `size` if given; raises BadImage if it can't be used.  # (3, H, W)"""
        ...


@runtime_checkable
class Dataset(Protocol):
    """Labelled images, listed cheaply and read one by one."""

    classes: Sequence[str]

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Sample]:
        """The samples in a fixed order, without reading an image."""
        ...

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The image, square with side `size` if given; raises BadImage if it can't be used.  # (3, H, W)"""
        ...


@dataclass(frozen=True)
class Caption:
    """A captioner's answer: a text, or the reason why there is none."""

    text: str
    problem: str = ""  # why there is no caption that can be used; empty if all is well


@runtime_checkable
class Captioner(Protocol):
    """Describes images in words."""

    def caption(self, images: Tensor, samples: Sequence[Sample]) -> list[Caption]:
        """One caption per image; `samples` say which images they are, for captions that were written down before."""
        ...


@dataclass(frozen=True)
class RewriteRequest:
    """A caption and the factor that is to change in it."""

    caption: str
    factor: str  # one of counterfoil.parts.language.grammar.FACTORS
    seed: int = 0  # the same request with the same seed gets the same answer


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
    reason: str  # one of counterfoil.parts.language.caption_checks.REASONS
    detail: str = ""  # for people


@dataclass(frozen=True)
class Proposals:
    """A rewriter's answer to one request: unchecked captions, and proposals it already knows to be useless."""

    captions: tuple[str, ...] = ()
    rejections: tuple[Rejection, ...] = ()


@runtime_checkable
class Rewriter(Protocol):
    """Rewrites one factor of a caption."""

    def rewrite(self, requests: Sequence[RewriteRequest]) -> list[Proposals]:
        """The captions it proposes, one answer per request; row i depends on request i alone."""
        ...


@dataclass(frozen=True)
class Inversion:
    """An editor's representation of one image: enough to draw it again, and to draw it differently."""

    caption: str
    tensors: Mapping[str, Tensor]


@dataclass(frozen=True)
class EditResult:
    """One image redrawn, in as many ways as the editor sweeps over."""

    candidates: Tensor  # (S, 3, H, W), in the order of the editor's `sweep`
    reconstruction: Tensor  # (3, H, W): what inversion and redrawing do to the image without an edit


@dataclass(frozen=True)
class Refusal:
    """The reason why a row could not be processed; it is counted, and the others are processed."""

    reason: str


@runtime_checkable
class Editor(Protocol):
    """Changes an image so that it fits an edited caption, in two halves so that the costly one runs once per image."""

    size: int | None
    """Side of the square images it works on, or None for any size."""
    sweep: Sequence[str]
    """The settings it tries for every edit, one candidate each, as in ("self_replace=0.4", "self_replace=0.6")."""

    def invert(self, images: Sequence[Tensor], captions: Sequence[str], seeds: Sequence[int]) -> list[Inversion | Refusal]:
        """One inversion per image, from the image, its caption and its seed alone; what is not (3, H, W) is refused."""
        ...

    def edit(self, inversions: Sequence[Inversion], edited: Sequence[str]) -> list[EditResult | Refusal]:
        """The images redrawn to the edited captions; one image's inversion may stand in many rows. No words: refused."""
        ...


@runtime_checkable
class Painter(Protocol):
    """Paints an image from words."""

    def paint(self, prompts: Sequence[str], seeds: Tensor) -> Tensor:
        """One image per prompt.  # (N, 3, H, W)"""
        ...


@dataclass(frozen=True)
class Painted:
    """Painted images, with the verdict of the painter's own safety filter on each: None where it has no filter."""

    images: Tensor  # (N, 3, H, W) in [0, 1]
    flagged: tuple[bool | None, ...]


@runtime_checkable
class FilteredPainter(Painter, Protocol):
    """A painter with a safety filter."""

    def paint_filtered(self, prompts: Sequence[str], seeds: Tensor) -> Painted:
        """One image per prompt, with the filter's verdict."""
        ...


@runtime_checkable
class Embedder(Protocol):
    """Embeds images and words into one space: all that protocols need of an encoder."""

    def embed_images(self, images: Tensor) -> Tensor:
        """Embeddings of any length, differentiable.  # (N, 3, H, W) → (N, D)"""
        ...

    def embed_texts(self, texts: Sequence[str]) -> Tensor:
        """Embeddings of any length.  # → (len(texts), D)"""
        ...


class Encoder(Embedder, Protocol):
    """An embedder whose cosine similarities are logits, so that models and oracles can be made of it."""

    def logits(self, similarity: Tensor) -> Tensor:
        """Cosine similarities, scaled and shifted as the model was trained.  # (N, K)"""
        ...

    @property
    def size(self) -> int | None:
        """Side of the square images it sees, or None for any size."""
        ...

    @property
    def pairwise(self) -> bool:
        """True if each class has a probability of its own (sigmoid) instead of a share (softmax)."""
        ...

    def to(self, device: torch.device | str) -> Encoder: ...

    def provenance(self) -> dict[str, str]: ...


@runtime_checkable
class Chat(Protocol):
    """A vision-language model that answers in words."""

    def answer(self, images: Sequence[Tensor], questions: Sequence[str]) -> list[str]:
        """One answer per image and question.  # each image (3, H, W)"""
        ...


CONTRACTS: Mapping[str, type[Any]] = {
    "model": Model,
    "generator": Generator,
    "oracle": Oracle,
    "dataset": Dataset,
    "captioner": Captioner,
    "rewriter": Rewriter,
    "editor": Editor,
    "painter": Painter,
    "encoder": Embedder,
    "chat": Chat,
}
"""The contract of each role."""


@dataclass(frozen=True)
class Trait:
    """One thing that a part gets or assumes, printed before a run: Trait("input", "224×224, centre crop", "the weights")."""

    what: str  # input, normalisation, rule, made for, …
    value: str
    decided_by: str = ""  # who decided it: the weights, the options, the file; "assumed" where nothing did
    caution: str = ""  # one sentence for people where it was not asked for and results may suffer
    classes: tuple[str, ...] = ()  # of a part that is made for some kind of images: the classes it knows

    def __str__(self) -> str:
        return f"{self.value} ({self.decided_by})" if self.decided_by else self.value


def describe(part: Any) -> list[Trait]:
    """Everything a part gets and assumes: its own `describe()`, or the size it works at if it has none.

    A part may have attributes `made_for`, as in "images of garments", and `made_for_classes`, the classes it knows.
    """
    size, subject = getattr(part, "size", None), getattr(part, "made_for", "")
    found = [Trait("input", f"{size}×{size}", "the part")] if isinstance(size, int) else []
    if hasattr(part, "describe"):
        found = list(part.describe())
    if isinstance(subject, str) and subject and not any(trait.what == "made for" for trait in found):
        known = tuple(getattr(part, "made_for_classes", ()))
        found.append(Trait("made for", subject, "its author", classes=known))
    return found


def caution_for(trait: Trait, names: Sequence[str]) -> str:
    """The caution of a trait in a run about these classes: its own, or that the part is not made for some of them."""
    known = {name.casefold() for name in trait.classes}
    strange = [name for name in names if name.casefold() not in known] if known else []
    if not strange:
        return trait.caution
    told = ", ".join(strange[:3]) + (f" and {len(strange) - 3} more" if len(strange) > 3 else "")
    return f"made for {trait.value}, not for {told}; results for other classes mean nothing"


def check(part: Any, role: str, given: str) -> None:
    """Raise BadPart if a part lacks what its role needs. `given` begins the message: `data is`."""
    if isinstance(part, type):
        raise BadPart(f"{given} the class {part.__name__} itself; give an object of it, as in {part.__name__}()")
    contract = CONTRACTS[role]
    lacking = [name for name in _members(contract) if not hasattr(part, name)]
    if lacking:
        where = f"{contract.__name__} in {contract.__module__}"
        raise BadPart(f"{given} a {type(part).__name__} without {', '.join(lacking)}; see {where}")


def to_device(part: Part, device: torch.device | str) -> Part:
    """The part on a device, if it can be moved."""
    move: Callable[[torch.device | str], Part] | None = getattr(part, "to", None)
    return part if move is None else move(device)


class Movable:
    """A part that is moved to a device with all that it holds."""

    def to(self, device: torch.device | str) -> Self:
        """The same part, with its tensors, networks and other parts on a device."""
        for name, value in vars(self).items():
            moved = [to_device(each, device) for each in value] if isinstance(value, list) else to_device(value, device)
            setattr(self, name, moved)
        return self


def reader_of(dataset: Dataset) -> Reader | None:
    """The data set's `reader()`, which reads its images without its list; None if it has no such method."""
    reader: Reader | None = dataset.reader() if hasattr(dataset, "reader") else None
    return reader


def provenance_of(part: Any) -> dict[str, str]:
    """A part's own account for `run.json`; empty if it gives none."""
    account: dict[str, str] = part.provenance() if hasattr(part, "provenance") else {}
    return account


def _members(contract: type[Any]) -> list[str]:
    """The attributes, properties and methods that a contract asks for."""
    defined = [name for name, value in vars(contract).items() if inspect.isfunction(value) or isinstance(value, property)]
    methods = [name for name in defined if not name.startswith("_") or name in ("__len__", "__iter__")]
    return [*inspect.get_annotations(contract), *methods]
