"""Ask another model or another oracle about the stored images of a run, without making them again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from counterfoil.core.errors import BadRun, UsageError
from counterfoil.core.records import Picture, Prediction, Trial, Verdict
from counterfoil.core.spec import PartSpec, Precision
from counterfoil.parts import calls, images, registry
from counterfoil.parts.contracts import Model, Sample, provenance_of, to_device
from counterfoil.parts.fast.dtypes import computing
from counterfoil.protocols.provenance import caution_later
from counterfoil.protocols.reading import Run as ReadRun
from counterfoil.protocols.workspace import prediction_of, reading
from counterfoil.store import Run
from counterfoil.store.later import AskedPart, Role, asked_of, record

Stored = tuple[Trial, Picture]
Watch = Callable[[int], None]
Tell = Callable[[str], None]
Answer = Prediction | Verdict
BATCHES = {"cpu": 8, "cuda": 32}  # images in one call
READERS = 4
CHUNK_ROWS = 512  # answers that a kill can lose at most
_NO_RIVALS = ("oracle", "dataset", "encoder", "captioner", "rewriter")
"""Roles whose weights an oracle may have. All others are tested models, one of them a role of its own, and makers of images."""

_SEVERAL = ("others", "models", "surrogates", "chats")
"""Fields of a specification that name several models."""
_APART = "keep these under another, as in --as NAME"


def score(
    run: Run,
    asked: PartSpec,
    *,
    name: str | None = None,
    built: Model | None = None,
    device: str = "cpu",
    again: bool = False,
    watch: Watch = lambda images: None,
    tell: Tell = lambda line: None,
) -> None:
    """Store a model's predictions next to the run's own, under its name or another that is given.

    `built` is the model itself where `asked` only names it. Images that it has classified before are left out, so that an
    interrupted call resumes; with `again` it is asked about all. UsageError if another model's answers go by that name.
    """
    _check_has_pictures(run)
    model = _part("model", asked, device) if built is None else built
    later = _record_of(run, model, "model", asked, name or asked.name, tell)
    # A class of the run may stand for several of a model's; each goes by its own name where the run says nothing else.
    ids = run.provenance.get("class_ids")
    reader = replace(reading(later.name, model, run.classes, ids), precision=_precision(run))

    def predict(stored: list[Stored], pictures: Tensor) -> Iterator[Answer]:
        looks = reader.looks(pictures, [trial.label for trial, _ in stored])
        for (trial, picture), look in zip(stored, looks, strict=True):
            yield prediction_of(trial.trial_id, picture, later.name, look)

    _ask(run, later, predict, device, again, watch)


def judge(
    run: Run,
    asked: PartSpec,
    *,
    name: str | None = None,
    device: str = "cpu",
    again: bool = False,
    watch: Watch = lambda images: None,
    tell: Tell = lambda line: None,
) -> None:
    """Store an oracle's verdicts next to the run's own, as `score` does predictions; it is asked again where it abstained."""
    _check_has_pictures(run)
    oracle = calls.bind(_part("oracle", asked, device), run.classes, part=f"oracle {asked.name}")
    if getattr(oracle, "cross_fitted", False) and not oracle.fitted:  # type: ignore[attr-defined]
        with calls.naming(f"oracle {asked.name}"):
            oracle = oracle.fit(_SourceImages(run), device=device)  # type: ignore[attr-defined]
    later = _record_of(run, oracle, "oracle", asked, name or asked.name, tell)

    def decide(stored: list[Stored], pictures: Tensor) -> Iterator[Answer]:
        idle = [stored[-1]] * (len(pictures) - len(stored))
        truth = torch.tensor([trial.label for trial, _ in stored + idle], device=pictures.device)
        sources = [trial.image_id for trial, _ in stored + idle]
        with computing(_precision(run), pictures.device):
            said = calls.judge(oracle, pictures, truth, len(run.classes), part=f"oracle {later.name}", sources=sources)
        for (trial, picture), answer in zip(stored, said, strict=False):
            yield Verdict(trial.trial_id, picture, later.name, *answer)

    _ask(run, later, decide, device, again, watch)


def _ask(
    run: Run,
    part: AskedPart,
    ask: Callable[[list[Stored], Tensor], Iterator[Answer]],
    device: str,
    again: bool,
    watch: Watch,
) -> None:
    """Add a part's answers on the images that it has not decided on, or on all of them."""
    answers = run.predictions if part.role == "model" else run.verdicts
    with ReadRun(run.path).appending(chunk_rows=CHUNK_ROWS) as rows:
        record(run.path, part)
        held = () if again else answers(part.name)
        done = {(each.trial_id, each.picture) for each in held if getattr(each, "keeps_label", True) is not None}
        watch(len(done))
        left = (each for each in _stored_images(run) if (each[0].trial_id, each[1]) not in done)
        for stored, pictures in _batches(run, left, device):
            rows.add(**{"predictions" if part.role == "model" else "verdicts": list(ask(stored, pictures))})  # type: ignore[arg-type]
            watch(len(stored))


class _SourceImages:
    """The source images that a run has stored, as a data set that an oracle can be fitted on."""

    def __init__(self, run: Run) -> None:
        self.classes = run.classes
        self._run = run
        self._trials = {trial.image_id: trial for trial, kind in _stored_images(run) if kind == "clean"}

    def __len__(self) -> int:
        return len(self._trials)

    def __iter__(self) -> Iterator[Sample]:
        return (Sample(trial.image_id, trial.label, trial.source) for trial in self._trials.values())

    def load(self, sample: Sample, size: int | None) -> Tensor:
        """The image as the run stored it.  # (3, H, W)"""
        return images.read(self._run.picture(self._trials[sample.image_id], "clean"))


def _record_of(run: Run, part: Any, role: Role, asked: PartSpec, name: str, tell: Tell) -> AskedPart:
    """The record of a part that is asked later; says so if it has the weights of a part of the run that it must not have."""
    told = provenance_of(part)
    for known in _parts_known(run, role):
        if known.name != name:
            continue
        if known.part and known.part != asked.model_dump():
            raise UsageError(f"{role} {name}: the run has answers of one by that name, with other options; {_APART}")
        if "weights" in told and known.provenance.get("weights", told["weights"]) != told["weights"]:
            raise UsageError(f"{role} {name}: the run has answers of one by that name, with other weights; {_APART}")
    parts: Mapping[str, Mapping[str, str]] = run.provenance.get("parts") or {}
    rivals = [other for other in parts if (other == "oracle" if role == "model" else other not in _NO_RIVALS)]
    caution = "; ".join(filter(None, (caution_later(part, parts[other], role=other) for other in rivals)))
    if caution:
        tell(f"{role} {name} is {caution}")
    return AskedPart(role, name, told, caution, asked.model_dump())


def _parts_known(run: Run, role: Role) -> Iterator[AskedPart]:
    """The parts of a role that have answered: those of the run itself, and those asked later."""
    recorded: Mapping[str, Mapping[str, str]] = run.provenance.get("parts") or {}
    several = [each for key in _SEVERAL for each in run.spec.get(key) or ()] if role == "model" else []
    for part in filter(None, [run.spec.get(role), *several]):
        if isinstance(part, Mapping):
            told = recorded.get(role if part is run.spec.get(role) else part["name"]) or {}
            yield AskedPart(role, part["name"], told, part={"name": part["name"], "options": part.get("options") or {}})
    yield from (each for each in asked_of(run.path) if each.role == role)


def _precision(run: Run) -> Precision:
    """The dtype of the run's parts, so that the same part gives the same answers again. Float32 is float32 on a GPU too."""
    chosen: Precision = (run.spec.get("engine") or {}).get("precision") or "float32"
    return chosen


def pictures_of(run: Run) -> int:
    """Number of images to ask about."""
    return sum(1 for _ in _stored_images(run))


def _check_has_pictures(run: Run) -> None:
    if next(_stored_images(run), None) is None:
        raise BadRun(f"{run.path}: has no images to ask about yet; repeat its command first")


def _part(role: str, asked: PartSpec, device: str) -> Any:
    return to_device(registry.create(role, asked.name, asked.options), device)


def _stored_images(run: Run) -> Iterator[Stored]:
    for trial in run.trials:
        if trial.ending != "skipped" and trial.arm in ("guided", "source"):
            if trial.clean:
                yield trial, "clean"
            if trial.reconstruction:
                yield trial, "reconstruction"
        if trial.image:
            yield trial, "made"


def _batches(run: Run, left: Iterator[Stored], device: str) -> Iterator[tuple[list[Stored], Tensor]]:
    """The images that are left, read in threads while the batch before is asked about.

    Always the same number of images, the last ones repeated, so that an answer does not depend on its neighbours.
    """
    size = BATCHES["cpu" if torch.device(device).type == "cpu" else "cuda"]

    def read(entry: Stored) -> Tensor:
        return images.read(run.picture(*entry))

    with ThreadPoolExecutor(READERS, thread_name_prefix="read") as pool:
        ahead: deque[tuple[list[Stored], Iterator[Tensor]]] = deque()
        while True:
            while len(ahead) < 2 and (batch := list(islice(left, size))):
                ahead.append((batch, pool.map(read, batch)))
            if not ahead:
                return
            batch, found = ahead.popleft()
            pictures = list(found)
            yield batch, torch.stack(pictures + pictures[-1:] * (size - len(pictures))).to(device)
