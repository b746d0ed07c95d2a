"""The examination: one look after another, and what they come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from counterfoil.core.errors import BadPart, RunFailed
from counterfoil.core.records import Estimate
from counterfoil.doctor import gradients, outputs, reconstruction, speed
from counterfoil.doctor.findings import Diagnosis, Finding, Section
from counterfoil.doctor.probe import probe
from counterfoil.doctor.sample import Handful, handful, in_tiles, percent, share, verdicts
from counterfoil.doctor.steadiness import check_steadiness
from counterfoil.parts import calls
from counterfoil.protocols.assembly import Assembly

IMAGES = 96  # enough to tell a wrong normalisation of a good network, which costs some ten points, in nine of ten tries
FEW = 24  # pictures below which the tests have little to go on

Watch = Callable[[str], None]


@dataclass
class _Notes:
    sections: list[Section] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    def add(self, title: str, rows: dict[str, str], findings: list[Finding] | None = None) -> None:
        self.sections.append(Section(title, rows))
        self.findings += findings or []


def examine(assembly: Assembly, *, images: int = IMAGES, watch: Watch = lambda doing: None) -> Diagnosis:
    """Look at a run's parts on a handful of pictures. `watch` hears what is being done."""
    notes = _Notes()
    watch("reading pictures")
    few = handful(assembly, images)
    notes.add("data and labels", _labels(assembly, few), _data(few))

    watch("asking the model")
    try:
        classes = len(assembly.model.classes)
        logits = in_tiles(lambda some: calls.logits_of(assembly.model.logits, some.clone(), classes), few.images)
    except (BadPart, RunFailed) as error:
        notes.findings.append(_outputs(str(error), len(assembly.model.classes)))
        return Diagnosis(tuple(notes.sections), tuple(notes.findings))
    if not bool(torch.isfinite(logits).all()):
        notes.findings.append(_not_finite(logits))
        return Diagnosis(tuple(notes.sections), tuple(notes.findings))
    right = logits.argmax(1) == few.truth
    watch("asking the oracle")
    said = verdicts(assembly.oracle, few.images, few.labels)
    agrees = share(said[said >= 0] == 1)
    abstains = int((said < 0).sum())
    rows = {"clean accuracy": percent(share(right)), "oracle agrees with the labels": percent(agrees)}
    notes.add("accuracy", rows | ({"oracle abstains": f"on {abstains} of {len(few)}"} if abstains else {}))

    unsteady = check_steadiness(assembly.model, few)
    suspected = outputs.check_scores(logits) + unsteady
    if not suspected:  # an unsteady or doubly softened model would be blamed for what it suffers from
        suspected = _mistakes(assembly, few, logits, watch)
    notes.findings += suspected
    suspected = [finding for finding in suspected if finding.severity == "mistake"]
    if agrees.value is not None:
        notes.findings += _truth(share(right), agrees, suspected)

    watch("checking gradients")
    rows, found = gradients.check_gradients(assembly.model, few)
    climbs = assembly.model.differentiable and not found and assembly.spec.search.guidance in ("auto", "gradient")
    if climbs:
        more, found = gradients.check_climb(assembly.model, assembly.generator, few, assembly.spec.search)
        rows |= more
    # The slope of an answer that changes by itself, and steps against a wrong class, say nothing new.
    told = [] if unsteady or (suspected and climbs) else found
    notes.add("gradients", rows, _consequences(told, suspected) if rows.get("gradient") != "blocked" else told)

    watch("reconstructing")
    pictures = reconstruction.reconstructed(assembly.generator, few)
    rows, found = reconstruction.check_reconstruction(assembly.model, assembly.oracle, few, pictures, right)
    notes.add("reconstruction", rows, found)

    watch("measuring speed")
    notes.add("cost", _cost(assembly, few, climbs=climbs))
    return Diagnosis(tuple(notes.sections), tuple(notes.findings))


def _mistakes(assembly: Assembly, few: Handful, logits: Tensor, watch: Watch) -> list[Finding]:
    """The first of these that explains what is seen: the order of the outputs, the way pictures come in."""
    watch("trying orders of the classes")
    found = outputs.check_order(few, logits, assembly.model.classes)
    if not found:
        found = probe(assembly.model, few, logits, watch=lambda done, total: watch(f"trying other inputs, {done} of {total}"))
    return found or outputs.check_meaning(few, logits)


def _consequences(found: list[Finding], known: list[Finding]) -> list[Finding]:
    """Flat or odd gradients where inputs are out of range: a network that saturates has them, and nothing else is wrong."""
    if not {"normalisation", "input range"} & {finding.mistake for finding in known}:
        return found
    return [
        replace(each, severity="caution", remedy="put the input right first: out of range, a network saturates") for each in found
    ]


def _labels(assembly: Assembly, few: Handful) -> dict[str, str]:
    data, model = assembly.dataset.classes, assembly.model.classes
    seen = sorted(set(few.labels.tolist()))
    ends = dict.fromkeys(seen[:1] + seen[-1:])
    pairs = [f"{data[label]} → {model[assembly.columns[label]]} [{assembly.columns[label]}]" for label in ends]
    return {
        "pictures tried": f"{len(few)} of {len(assembly.dataset)}, {len(seen)} of {len(data)} classes, side {assembly.size}",
        "unreadable": str(len(few.unreadable)) + (f", the first: {few.unreadable[0]}" if few.unreadable else ""),
        "labels matched": f"all {len(data)} among the model's {len(model)} outputs",
        "such as": "; ".join(pairs),
    }


def _data(few: Handful) -> list[Finding]:
    found = []
    if few.unreadable:
        tried = len(few) + len(few.unreadable)
        found.append(
            Finding(
                "pictures",
                f"{len(few.unreadable)} of the {tried} pictures tried cannot be read, and a run passes over such pictures",
                few.unreadable[0],
                "repair or remove them, or have a run stop at the first (--strict)",
                severity="mistake" if len(few.unreadable) > len(few) else "caution",
            )
        )
    if len(few) < FEW:
        found.append(
            Finding(
                "few pictures",
                f"so few pictures ({len(few)}) say little: mistakes that cost a few points go unseen",
                f"n = {len(few)}",
                f"examine {FEW} or more (--images)",
                severity="caution",
            )
        )
    return found


def _truth(model: Estimate, oracle: Estimate, known: list[Finding]) -> list[Finding]:
    """Who is to blame when nobody agrees with the labels."""
    found = []
    if (oracle.high or 0) < 50 and (model.high or 0) < 50:
        found.append(
            Finding(
                "labels of the data",
                "neither the model nor the oracle agrees with the labels",
                f"model {percent(model)}, oracle {percent(oracle)}",
                "check that the data's class names belong to its pictures, and that pictures are read as they should be",
                severity="caution" if known else "mistake",
            )
        )
    elif (oracle.high or 0) < 50:
        found.append(
            Finding(
                "oracle",
                "the oracle does not agree with the labels of untouched pictures",
                f"oracle {percent(oracle)}, model {percent(model)}",
                "check its class names, templates and threshold; most images would go unvalidated",
            )
        )
    elif (model.high or 0) < (oracle.low or 0) and (model.high or 0) < 50 and not known:
        found.append(
            Finding(
                "model",
                "the model is wrong on most pictures, and none of the usual mistakes explains it",
                f"model {percent(model)}, oracle {percent(oracle)}",
                "check its weights and that it was trained on these classes",
            )
        )
    return found


def _outputs(error: str, names: int) -> Finding:
    background = f"{names + 1}" in error
    says = f"the model has {names + 1} outputs for {names} names" if background else "the model does not answer as it should"
    remedy = "one of them is a background class, usually the first: leave it out (skip: 1)" if background else "see the message"
    return Finding("number of outputs", says, error, remedy)


def _not_finite(logits: Tensor) -> Finding:
    bad = int((~torch.isfinite(logits)).any(1).sum())
    return Finding(
        "not finite",
        "the model's logits are not finite",
        f"{bad} of {len(logits)} pictures",
        "check its weights, its normalisation and the precision",
    )


def _cost(assembly: Assembly, few: Handful, *, climbs: bool) -> dict[str, str]:
    found = speed.measure(assembly, few, climbs=climbs)
    rows = {
        "model": f"{1000 * found.model:.1f} ms a picture",
        "oracle": f"{1000 * found.oracle:.1f} ms a picture",
        "rendering": f"{1000 * found.rendering:.1f} ms a picture",
    }
    if found.climbing:
        rows["one guided step"] = f"{1000 * found.climbing:.1f} ms a picture, gradient included"
    rows["peak memory"] = speed.peak_memory(assembly.spec.device)
    rows["predicted time of the run"] = (
        f"{speed.duration(speed.predicted(assembly, found))} at most, for {len(assembly.dataset)} images"
    )
    return rows
