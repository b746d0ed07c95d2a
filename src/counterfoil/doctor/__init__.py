"""Check a set-up for common mistakes before a run: what it measures, and which of the classic mistakes it suspects."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart, RunFailed
from counterfoil.core.records import Estimate
from counterfoil.doctor import gradients, outputs, timing
from counterfoil.doctor.inputs import check_inputs
from counterfoil.doctor.oracles import OracleTrial, find_better, try_oracle
from counterfoil.doctor.sample import FewImages, Finding, SetUp, ask_in_batches, percent, read_few, set_ups, share
from counterfoil.parts import calls
from counterfoil.parts.models.preprocessing import share_seen

__all__ = ["IMAGES", "Diagnosis", "Finding", "Section", "SetUp", "examine", "set_ups"]

IMAGES = 96  # enough to tell a wrong normalisation of a good network, which costs some ten points, in nine of ten tries
FEW = 24  # images below which the tests can tell little


@dataclass(frozen=True)
class Section:
    """Measured values under a heading, in the order in which they are shown."""

    title: str
    rows: dict[str, str]


@dataclass
class Diagnosis:
    """Everything that an examination found, in the order in which it was found."""

    model: str
    sections: list[Section] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    tell: Callable[[Section | Finding], None] = lambda found: None

    @property
    def healthy(self) -> bool:
        """Tell whether no mistake is suspected."""
        return not any(finding.severity == "mistake" for finding in self.findings)

    def add(self, title: str, rows: dict[str, str], findings: list[Finding] | None = None) -> None:
        """Note measured values and what follows from them."""
        if rows:
            self.sections.append(Section(title, rows))
            self.tell(self.sections[-1])
        for finding in findings or []:
            self.findings.append(finding)
            self.tell(finding)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for a JSON file."""
        return {
            "model": self.model,
            "healthy": self.healthy,
            "findings": [vars(finding) for finding in self.findings],
            "sections": {section.title: section.rows for section in self.sections},
        }


def examine(
    setup: SetUp,
    *,
    images: int = IMAGES,
    watch: Callable[[str], None] = lambda doing: None,
    tell: Callable[[Section | Finding], None] = lambda found: None,
) -> Diagnosis:
    """Try a set-up's parts on a few images. `watch` hears what is being done, `tell` what was found, as it is found."""
    found = Diagnosis(setup.name, tell=tell)
    watch("reading images")
    few = read_few(setup, images)
    found.add("data and labels", _labels(setup, few), _data(few))

    watch("asking the model")
    try:
        classes = len(setup.model.classes)
        logits = ask_in_batches(lambda some: calls.logits_of(setup.model.logits, some.clone(), classes), few.images)
    except (BadPart, RunFailed) as error:
        found.add("", {}, [_broken_model(str(error), classes)])
        return found
    if not bool(torch.isfinite(logits).all()):
        evidence = f"{int((~torch.isfinite(logits)).any(1).sum())} of {len(logits)} images"
        remedy = "check its weights, its normalisation and the precision"
        found.add("", {}, [Finding("not finite", "the model's logits are not finite", evidence, remedy)])
        return found
    right = logits.argmax(1) == few.truth
    watch("asking the oracle")
    rows, tried, broken = _accuracy(setup, few, right)
    found.add("accuracy", rows, broken)

    unsteady = outputs.check_repeatable(setup.model, few)
    suspected = outputs.check_scores(logits) + unsteady
    if not suspected:  # an unsteady or doubly softened model would be blamed for what it suffers from
        suspected = _find_mistake(setup, few, logits, watch)
    found.add("", {}, suspected)
    suspected = [finding for finding in suspected if finding.severity == "mistake"]
    if tried is not None:
        watch("asking other oracles")
        found.add("", {}, _blame(share(right), tried, suspected) or find_better(tried, setup, few))

    watch("checking gradients")
    rows, told = gradients.check_gradients(setup.model, few)
    steps = False
    if setup.generator is not None and setup.model.differentiable and not told:
        steps = setup.spec.search.guidance in ("auto", "gradient")
        if steps:
            more, told = gradients.check_step(setup.model, setup.generator, few, setup.spec.search)
            rows |= more
    # The slope of an answer that changes by itself, and steps against a wrong class, say nothing new.
    new = [] if unsteady or (suspected and steps) else told
    found.add("gradients", rows, _consequences(new, suspected) if rows.get("gradient") != "blocked" else told)

    if setup.generator is not None and not broken:
        watch("reconstructing")
        found.add("reconstruction", *gradients.check_reconstruction(setup, few, right))
    if setup.assembly is not None and not broken:
        watch("measuring speed")
        found.add("cost", timing.cost_rows(setup.assembly, few, steps=steps))
    return found


def _find_mistake(setup: SetUp, few: FewImages, logits: Tensor, watch: Callable[[str], None]) -> list[Finding]:
    """The first of these that explains what is seen: the order of the outputs, how images reach the model."""
    watch("trying orders of the classes")
    found = outputs.check_order(few, logits, setup.model.classes)
    if not found:
        found = check_inputs(setup.model, few, logits, watch=lambda done, total: watch(f"trying other inputs, {done} of {total}"))
    return found or outputs.check_meaning(few, logits)


def _consequences(found: list[Finding], known: list[Finding]) -> list[Finding]:
    """Flat or odd gradients where inputs are out of range: a network that saturates has them, and nothing else is wrong."""
    if not {"normalisation", "input range"} & {finding.mistake for finding in known}:
        return found
    return [
        replace(each, severity="caution", remedy="put the input right first: out of range, a network saturates") for each in found
    ]


def _accuracy(setup: SetUp, few: FewImages, right: Tensor) -> tuple[dict[str, str], OracleTrial | None, list[Finding]]:
    """Accuracy on the images as they are, the oracle tried on them, and an oracle that breaks its contract."""
    rows = {"clean accuracy": percent(share(right))}
    if setup.oracle is None:
        return rows, None, []
    try:
        tried = try_oracle(setup.spec.oracle, setup.oracle, setup, few)
    except (BadPart, RunFailed) as error:
        return rows, None, [Finding("oracle", "the oracle does not answer as it should", str(error), "see the message")]
    return rows | tried.rows(), tried, []


def _labels(setup: SetUp, few: FewImages) -> dict[str, str]:
    data, model = setup.dataset.classes, setup.model.classes
    seen = sorted(set(few.labels.tolist()))
    pairs = [f"{data[label]} → {model[setup.columns[label]]} [{setup.columns[label]}]" for label in {seen[0]: 0, seen[-1]: 0}]
    height, width = few.images.shape[-2:]
    parts = {"model": setup.model, **({"oracle": setup.oracle} if setup.oracle is not None else {})}
    shares = {role: share_seen(part, height, width) for role, part in parts.items()}
    return {
        "images tried": f"{len(few)} of {len(setup.dataset)}, {len(seen)} of {len(data)} classes, side {width}",
        "unreadable": str(len(few.unreadable)) + (f", the first: {few.unreadable[0]}" if few.unreadable else ""),
        "labels matched": f"all {len(data)} among the model's {len(model)} outputs",
        "such as": "; ".join(pairs),
        "share of an image seen": ", ".join(f"{role} {seen:.0%}" for role, seen in shares.items()),
    }


def _data(few: FewImages) -> list[Finding]:
    found = []
    if bad := len(few.unreadable):
        says = f"{bad} of the {len(few) + bad} images tried cannot be read, and a run skips such images"
        remedy = "repair or remove them, or have a run stop at the first (--strict)"
        found.append(Finding("images", says, few.unreadable[0], remedy, severity="mistake" if bad > len(few) else "caution"))
    if len(few) < FEW:
        says = f"so few images ({len(few)}) say little: mistakes that cost a few points go unseen"
        remedy = f"examine {FEW} or more (--images)"
        found.append(Finding("few images", says, f"n = {len(few)}", remedy, severity="caution"))
    return found


def _blame(model: Estimate, oracle: OracleTrial, known: list[Finding]) -> list[Finding]:
    """Name what is to blame where the model, and perhaps the oracle too, disagrees with the labels."""
    if oracle.right.value is None or (model.high or 0) >= 50:
        return []
    evidence = f"model {percent(model)}, oracle {percent(oracle.right)}"
    if (oracle.right.high or 0) < 50:
        says = "neither the model nor the oracle agrees with the labels"
        remedy = "check that the data's class names belong to its images, and that images are read as they should be"
        return [Finding("labels of the data", says, evidence, remedy, severity="caution" if known else "mistake")]
    if (model.high or 0) < (oracle.right.low or 0) and not known:
        says = "the model is wrong on most images, and none of the usual mistakes explains it"
        return [Finding("model", says, evidence, "check its weights and that it was trained on these classes")]
    return []


def _broken_model(error: str, names: int) -> Finding:
    if f"{names + 1})" in error:
        remedy = "one of them is a background class, usually the first: leave it out (skip: 1)"
        return Finding("number of outputs", f"the model has {names + 1} outputs for {names} names", error, remedy)
    return Finding("contract", "the model does not answer as it should", error, "see the message")
