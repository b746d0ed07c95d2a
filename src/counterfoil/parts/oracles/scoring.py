"""Oracles that give each class a probability, and the rule by which that accepts a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart
from counterfoil.parts import labels as names
from counterfoil.parts import registry
from counterfoil.parts.contracts import Encoder, Model, Movable, Oracle, Trait, Verdicts, describe, provenance_of
from counterfoil.parts.encoders import clip
from counterfoil.parts.encoders.clip import PAPER_TEMPLATE, check_templates, compare, embed_prompts

BelowThreshold = Literal["reject", "abstain"]

UNBOUND = "oracle: bind it to class names before it judges"


@dataclass(frozen=True)
class AcceptanceRule:
    """A label is kept when it is the most probable class, by at least `margin` over the next.

    Where no class reaches `threshold`, the oracle rejects or, with `below_threshold: abstain`, abstains.
    """

    threshold: float = 0.0
    margin: float = 0.0
    below_threshold: BelowThreshold = "reject"

    def __post_init__(self) -> None:
        for name, value in (("threshold", self.threshold), ("margin", self.margin)):
            if not 0 <= value <= 1:
                raise BadPart(f"oracle: {name} is a probability, from 0 to 1, got {value}")

    def decide(self, probabilities: Tensor, labels: Tensor) -> Verdicts:
        """Verdicts from probabilities over the bound classes; a row with one that is not finite scores NaN.  # (N, K), (N,)"""
        scores = probabilities.gather(1, labels[:, None])[:, 0]  # (N,)
        # Looking at them here would make the host wait for a GPU; the reader of the scores refuses what is not finite.
        scores = torch.where(torch.isfinite(probabilities).all(dim=1), scores, torch.nan)
        top, predicted = probabilities.max(dim=1)  # the first of equals
        others = probabilities.scatter(1, labels[:, None], -1.0).amax(dim=1)
        keeps = ((predicted == labels) & (scores - others >= self.margin)).to(torch.int8)
        unsure = torch.full_like(keeps, 0 if self.below_threshold == "reject" else -1)
        return Verdicts(
            keeps_label=torch.where(top >= self.threshold, keeps, unsure),
            scores=scores.float(),
            predicted=predicted,
        )

    @property
    def alone(self) -> AcceptanceRule:
        """The rule without the other options of a part that has more."""
        return AcceptanceRule(self.threshold, self.margin, self.below_threshold)

    def describe(self) -> Trait:
        """The rule in words."""
        rule = "accepts the most probable of the data's classes"
        rule += f", ahead by {self.margin:g}" if self.margin else ""
        unsure = f"{self.below_threshold}s below a probability of {self.threshold:g}" if self.threshold else "no threshold"
        return Trait("rule", f"{rule}; {unsure}", "the default" if self == ARGMAX else "the options")


ARGMAX = AcceptanceRule()
"""The plain rule: the label is the most probable class."""


@runtime_checkable
class ScoringOracle(Oracle, Protocol):
    """An oracle that gives each of its classes a probability, so that it can be averaged with others."""

    acceptance: AcceptanceRule

    def probabilities(self, images: Tensor) -> Tensor:
        """Probabilities of the bound classes.  # (N, 3, H, W) → (N, K)"""
        ...


class ClassifierOracle(Movable):
    """Sees the class that a model finds most probable among those the oracle is bound to."""

    def __init__(self, model: Model, *, name: str = "model", acceptance: AcceptanceRule = ARGMAX) -> None:
        self.model = model
        self.name = name
        self.acceptance = acceptance
        self._columns: list[int] | None = None

    def bind(self, classes: Sequence[str]) -> ClassifierOracle:
        bound = copy(self)
        what = f"oracle classifier:{self.name}"
        bound._columns = names.match(classes, self.model.classes, what=what, aliases=getattr(self.model, "aliases", None))
        return bound

    def probabilities(self, images: Tensor) -> Tensor:
        if self._columns is None:
            raise BadPart(UNBOUND)
        return self.model.logits(images)[:, self._columns].float().softmax(dim=-1)

    @torch.no_grad()
    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        return self.acceptance.decide(self.probabilities(images), labels)

    def describe(self) -> list[Trait]:
        return [*describe(self.model), self.acceptance.describe()]

    def provenance(self) -> dict[str, str]:
        return {"model": self.name, **provenance_of(self.model)}


class ZeroShotOracle(Movable):
    """Sees the class whose name is nearest to the image. Its score is the model's own probability of the label.

    With several templates a class is the mean of their embeddings, each of length one, brought to length one again.
    """

    def __init__(
        self, encoder: Encoder, *, templates: str | Sequence[str] = PAPER_TEMPLATE, acceptance: AcceptanceRule = ARGMAX
    ) -> None:
        self.encoder = encoder
        self.templates = check_templates(templates)
        self.acceptance = acceptance
        self._texts: Tensor | None = None  # (K, D), of length one

    def bind(self, classes: Sequence[str]) -> ZeroShotOracle:
        bound = copy(self)
        bound._texts = embed_prompts(self.encoder, classes, self.templates)
        return bound

    def probabilities(self, images: Tensor) -> Tensor:
        if self._texts is None:
            raise BadPart(UNBOUND)
        logits = compare(self.encoder, images, self._texts)  # (N, K)
        return logits.sigmoid() if self.encoder.pairwise else logits.softmax(dim=-1)

    @torch.no_grad()
    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        return self.acceptance.decide(self.probabilities(images), labels)

    def describe(self) -> list[Trait]:
        return [*describe(self.encoder), Trait("prompts", " | ".join(self.templates)), self.acceptance.describe()]

    def provenance(self) -> dict[str, str]:
        return {**self.encoder.provenance(), "templates": " | ".join(self.templates)}


@dataclass(frozen=True)
class ClassifierOptions(AcceptanceRule):
    options: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class OpenClipOptions(AcceptanceRule):
    templates: str | Sequence[str] = PAPER_TEMPLATE
    sha256: str | None = None


@dataclass(frozen=True)
class ClipOptions(OpenClipOptions):
    revision: str | None = None


def classifier_oracle(model: str, options: ClassifierOptions) -> ClassifierOracle:
    """Any model as an oracle: classifier:timm:resnet50, with the model's own options under `options`.

    An image keeps its label when the label is the most probable of the data's classes; the model's other classes are left
    out. `margin` asks for a lead over the next class; where no class has a probability of `threshold`, the oracle rejects
    or, with `below_threshold: abstain`, abstains.
    """
    if not model:
        raise BadPart("classifier: name a model, as in classifier:timm:resnet50")
    return ClassifierOracle(registry.create("model", model, options.options), name=model, acceptance=options.alone)


def clip_oracle(name: str, options: ClipOptions) -> ZeroShotOracle:
    """CLIP or SigLIP from transformers, given class names: clip:FOLDER, or clip:openai/clip-vit-base-patch32 from the hub.

    An image keeps its label when the label's prompt is the nearest. `templates` are prompts with `{class}` in them, averaged
    when there are several. `margin`, `threshold` and `below_threshold` are those of the oracle `classifier`. `revision` is a
    branch, tag or commit of the repository, `sha256` the hash of its weights.
    """
    encoder = clip.load(name, clip.EncoderOptions(options.sha256, options.revision))
    return ZeroShotOracle(encoder, templates=options.templates, acceptance=options.alone)


def openclip_oracle(name: str, options: OpenClipOptions) -> ZeroShotOracle:
    """A model of open_clip, given class names: openclip:ViT-B-32/openai, openclip:ViT-B-32/FILE, or openclip:FOLDER.

    The part behind the first slash is a set of published weights or a local file; a folder has open_clip_config.json next
    to the weights; `hf-hub:ORGANISATION/NAME` is a repository in that layout. `sha256` is the hash of the weights. The
    other options are those of the oracle `clip`.
    """
    encoder = clip.load_openclip(name, clip.OpenClipEncoderOptions(options.sha256))
    return ZeroShotOracle(encoder, templates=options.templates, acceptance=options.alone)
