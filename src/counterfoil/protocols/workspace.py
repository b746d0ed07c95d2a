"""The parts of a run at work: built from a specification, checked against each other, asked in batches of one size."""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from counterfoil.core.errors import BadData, BadImage, BadPart, BadSpec, RunFailed, one_line
from counterfoil.core.naming import image_seed
from counterfoil.core.records import Picture, Prediction
from counterfoil.core.spec import PartSpec, Precision, RunSpec
from counterfoil.parts import calls, labels, registry
from counterfoil.parts.contracts import Dataset, Model, Sample, Trait, caution_for, describe, provenance_of, to_device
from counterfoil.parts.datasets.image_set import TRIED, ImageSet
from counterfoil.parts.fast.dtypes import computing
from counterfoil.protocols.provenance import (
    MAKERS,
    check_independent,
    code_hash,
    hardware,
    packages_of,
    versions,
    with_data,
)
from counterfoil.store.files import key_of

S = TypeVar("S", bound=RunSpec)

SIZED = 8  # images whose own size is looked at
READ_AHEAD = 64  # images read before they are asked for
_VERSIONS = ("library",)  # recorded with the run; a newer one is no reason to process everything again
_KEPT = ("predicted", "correct", "confidence", "truth", "rank")  # of a look, as a prediction has it


@dataclass(frozen=True)
class Reading:
    """Read a model's outputs in the classes of a set: a hit on any output of the right class is right."""

    name: str
    model: Model
    outputs: tuple[tuple[int, ...], ...]  # for each class of the set
    precision: Precision = "float32"  # that the model computes in

    @torch.no_grad()
    def looks(self, images: Tensor, truths: Sequence[int]) -> list[dict[str, Any]]:
        """One entry per image, as plain values.  # (N, 3, H, W); `truths` may be fewer, further rows are idle"""
        with computing(self.precision, images.device):
            logits = calls.logits_of(self.model.logits, images, len(self.model.classes), part=f"model {self.name}")
        if not torch.isfinite(logits).all():
            raise RunFailed(f"model {self.name}: its scores are not finite; check its weights and precision")
        home = {output: label for label, group in enumerate(self.outputs) for output in group}
        chances = logits.softmax(dim=1).cpu()  # (N, K)
        return [self._look(row, truth, home) for row, truth in zip(chances, truths, strict=False)]

    def _look(self, row: Tensor, truth: int, home: Mapping[int, int]) -> dict[str, Any]:
        top = int(row.argmax())
        if all(len(group) == 1 for group in self.outputs):
            own = row[[group[0] for group in self.outputs]]  # (classes of the set,)
        else:
            own = torch.stack([row[list(group)].sum() for group in self.outputs])
        others = own.clone()
        others[truth] = -1
        return {
            "predicted": home.get(top, -1),
            "said": str(self.model.classes[top]),
            "correct": home.get(top) == truth,
            "confidence": float(row[top]),
            "truth": float(own[truth]),
            "rank": 1 + int((row > row[list(self.outputs[truth])].max()).sum()),
            "wrong": int(others.argmax()),  # the most probable of the set's wrong classes
            "wrong_chance": float(others.max()),
        }


def prediction_of(trial_id: str, picture: Picture, model: str, look: Mapping[str, Any]) -> Prediction:
    """A look as a run keeps it."""
    said = "" if look["predicted"] >= 0 else look["said"]  # a class of the run has the name that the run gives it
    return Prediction(trial_id, picture, model, **{name: look[name] for name in _KEPT}, said=said)


def reading(
    name: str,
    model: Model,
    classes: Sequence[str],
    ids: Mapping[str, Sequence[str]] | None = None,
    *,
    wanted_aliases: labels.Aliases | None = None,
) -> Reading:
    """Reader of a model in a run's classes, each of which may stand for several `ids`."""
    what, aliases = f"model {name}", getattr(model, "aliases", None)
    if ids is None or all(list(ids[known]) == [known] for known in classes):
        columns = labels.match(classes, model.classes, what=what, aliases=aliases, wanted_aliases=wanted_aliases)
        return Reading(name, model, tuple((column,) for column in columns))
    places = {labels.key(known): at for at, known in enumerate(model.classes)}
    if len(model.classes) == len(classes) and all(labels.key(known) in places for known in classes):
        return Reading(name, model, tuple((places[labels.key(known)],) for known in classes))  # it was given the set's own names
    groups = labels.resolve_groups({known: list(ids[known]) for known in classes}, model.classes, what=what, aliases=aliases)
    return Reading(name, model, tuple(tuple(groups[known]) for known in classes))


def columns_of(model: Model, dataset: Dataset, *, name: str) -> list[int]:
    """The model's output for each of a data set's classes."""
    reader = reading(name, model, dataset.classes, wanted_aliases=getattr(dataset, "aliases", None))
    return [output for (output,) in reader.outputs]


@dataclass(frozen=True)
class Given:
    """Objects that a process need not find by name: parts, and a data set that another process has listed."""

    parts: dict[str, Any] = field(default_factory=dict)  # by role, or by name where a run has several
    head: ImageSet | None = None  # of the data set, from a process that has listed it
    elsewhere: bool = False  # other processes build the parts and work with them; this one knows their names alone


@dataclass(frozen=True)
class Source:
    """One image to start from."""

    sample: Sample
    image: Tensor  # (3, H, W), rounded to 8 bits like every image that is judged
    seed: int


@dataclass
class Workspace(Generic[S]):
    """Everything a run works with. Parts are attributes by the key they have in the specification: `work.oracle`."""

    BATCHES: ClassVar[Mapping[str, int]] = {"cpu": 8, "cuda": 32}

    spec: S
    device: torch.device
    names: list[str]  # of the run's classes
    dataset: Any  # a Dataset, or None where a protocol has none
    parts: dict[str, Any]  # by key, or by name where a key has several
    readers: list[tuple[PartSpec, Any]]  # every tested model, as it is read in the run's classes
    class_ids: Mapping[str, Sequence[str]] | None = None  # what each class stands for, where it is more than its name
    caution: str = ""  # why the oracle's verdicts may not count, where that was forced

    @classmethod
    def open(
        cls,
        spec: S,
        given: Given | None = None,
        *,
        dataset: Any = None,
        class_ids: Mapping[str, Sequence[str]] | None = None,
        place: bool = True,
    ) -> Self:
        """Find, build and bind the parts that a specification names, and see that they fit together.

        Without `place` parts are on the CPU until they work, so that large ones need not be on a GPU together.
        """
        given = given or Given()
        device = device_of(spec.device)
        if dataset is None and getattr(spec, "data", None) is not None:
            dataset = open_data(spec, given)
        names = list(class_ids) if class_ids is not None else list(dataset.classes)
        parts: dict[str, Any] = {}
        readers: list[tuple[PartSpec, Any]] = []
        for own, role, named in spec.parts():
            if role == "model" and any(other.name == named.name for other, _ in readers):
                raise BadSpec(f"a model is named twice: {named.name}; name each once")
            if given.elsewhere:
                parts[own] = None
                readers += [(named, None)] if role == "model" else []
                continue
            part = given.parts.get(named.name, given.parts.get(role) if own in type(spec).model_fields else None)
            if part is None:
                part = registry.create(role, named.name, cls.options(named, names))
            if place:
                part = to_device(part, device)
            if role == "model":
                aliases = getattr(dataset, "aliases", None)
                readers.append((named, reading(named.name, part, names, class_ids, wanted_aliases=aliases)))
            if role == "oracle":
                part = calls.bind(part, names, part=f"oracle {named.name}")
            parts[own] = part
        cautions: list[str | None] = []
        if parts.get("oracle") is not None:
            cautions = [check_independent(each.model, parts["oracle"], force=spec.force) for _, each in readers]
        caution = "; ".join(dict.fromkeys(filter(None, cautions)))
        work = cls(spec, device, names, dataset, parts, readers, class_ids, caution)
        if getattr(parts.get("oracle"), "cross_fitted", False) and not parts["oracle"].fitted:
            work._fit_oracle(given)
        return work

    def _fit_oracle(self, given: Given) -> None:
        """Fit the oracle on the run's own images, all of them even where the run is limited to some."""
        part = f"oracle {self.spec.oracle.name}"  # type: ignore[attr-defined]
        if self.dataset is None:
            raise BadPart(f"{part}: is fitted on labelled images, and this run starts from none")
        whole = open_data(self.spec.model_copy(update={"limit": None}), replace(given, head=None))
        with calls.naming(part):
            self.parts["oracle"] = self.oracle.fit(whole, size=self.size, device=self.device)

    @classmethod
    def options(cls, named: PartSpec, names: Sequence[str]) -> Mapping[str, Any]:
        return named.options

    def __getattr__(self, key: str) -> Any:
        if key != "parts" and key in self.__dict__.get("parts", {}):
            return self.parts[key]
        raise AttributeError(f"{type(self).__name__} has no part {key!r}")

    # What the parts say of themselves

    @property
    def maker(self) -> str | None:
        """The key of the part that makes the images and says their size."""
        return next((key for key in MAKERS if getattr(self.parts.get(key), "size", None)), None)

    @cached_property
    def size(self) -> int:
        """The side of the images: what is asked for, what their maker works at, or what the first model takes."""
        side = getattr(self.parts[self.maker], "size", None) if self.maker else None
        if self.maker and self.spec.size and self.spec.size != side:
            maker = f"{self.maker} {getattr(self.spec, self.maker).name}"
            raise BadSpec(f"size {self.spec.size} given, but {maker} works at {side}")
        named, first = self.readers[0] if self.readers else (None, None)
        size = self.spec.size or side or getattr(first.model if first else None, "size", None)
        if size is None:
            named_maker = next((f"{key} {getattr(self.spec, key).name}" for key in MAKERS if key in self.parts), "the run's data")
            others = f" nor model {named.name}" if named else ""
            raise BadPart(
                f"neither {named_maker}{others} says its image size; give one, as in --size 224, or size=224 from Python"
            )
        return int(size)

    def account(self) -> dict[str, Any]:
        homes = {type(each).__module__.partition(".")[0] for each in (*self.parts.values(), self.dataset)}
        found = {
            "caution": self.caution,
            "cautions": self.cautions(),
            "class_ids": {name: list(ids) for name, ids in (self.class_ids or {}).items()},
            "functions": registry.function_hashes(self.spec.model_dump(mode="json")),
        }
        return {
            **{key: value for key, value in found.items() if value},
            "versions": versions(),
            "code": code_hash({*packages_of(self.spec), *homes}),
            "size": self.size if self._sized else 0,
            "parts": {key: part.provenance() for key, part in self.parts.items() if hasattr(part, "provenance")},
            "hardware": hardware(self.spec.device),
        }

    def provenance(self, account: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Provenance of the run for `run.json`: an account of the parts and of the data."""
        account = account or self.account()
        return dict(account) if self.dataset is None else with_data(account, self.dataset)

    @property
    def _sized(self) -> bool:
        return self.spec.size is not None or self.class_ids is None

    def traits(self) -> Iterator[tuple[str, Trait]]:
        """List what every part gets and assumes, by what the part is called: `model timm:resnet50`."""
        if self._sized:
            decided = "--size" if self.spec.size else f"the {self.maker}" if self.maker else "the model"
            yield "images", Trait("size", f"{self.size}×{self.size}", decided)
        for own, role, named in self.spec.parts():
            for trait in describe(self.parts[own]) if self.parts.get(own) is not None else ():
                yield f"{role} {named.name}", trait

    def introduction(self) -> list[str]:
        """Say in lines what each part gets and assumes, then the cautions for what was not asked for."""
        by_part: dict[str, list[Trait]] = {}
        for name, trait in self.traits():
            by_part.setdefault(name, []).append(trait)
        lines = [f"{name}: {'; '.join(f'{each.what} {each}' for each in traits)}" for name, traits in by_part.items()]
        return [*lines, *(f"take care: {caution}" for caution in (*self.cautions(), self.caution) if caution)]

    def cautions(self) -> list[str]:
        """List what was not asked for and may harm results."""
        told = [(name, caution_for(trait, self.names)) for name, trait in self.traits()]
        return [*(f"{name}: {caution}" for name, caution in told if caution), *self._shrinking()]

    def _shrinking(self) -> Iterator[str]:
        """Warn where images are made smaller than both the data's own and what a model takes, unless asked for."""
        key = self.maker
        if key is None or self.dataset is None or self.spec.size:
            return
        sides = []
        for sample in islice(self.dataset, SIZED):
            with suppress(BadImage):
                sides.append(min(self.dataset.load(sample, None).shape[-2:]))
        own = sorted(sides)[len(sides) // 2] if sides else 0
        for named, reader in self.readers:
            taken = getattr(reader.model, "size", None) or own
            if self.size < min(own, taken):
                shrunk = f"images of {own}×{own} (the median of {len(sides)}) are shrunk to {self.size}×{self.size}"
                less = f"model {named.name} sees less than the {taken}×{taken} it takes"
                yield f"{key} {getattr(self.spec, key).name}: {shrunk}, and {less}"

    def settings(self, key: str) -> dict[str, Any]:
        """Inputs that decide the answers of a part, for the keys of stages.

        Weights are known by their hash; where they lie decides nothing.
        """
        named = next(named for own, _, named in self.spec.parts() if own == key)
        told = provenance_of(self.parts[key])
        left_out = (*_VERSIONS, *(("source",) if "weights" in told else ()))
        own = {name: value for name, value in told.items() if name.rpartition(".")[2] not in left_out}
        return {"name": named.name, "options": named.options, "part": own}

    def for_workers(self, given: Given | None) -> Given:
        """Objects for workers, and the listing of the data, which saves them listing it."""
        return replace(given or Given(), head=self.dataset.head(TRIED)) if self.dataset is not None else given or Given()

    # Work

    @property
    def batch(self) -> int:
        """The fixed batch size of a part."""
        layout = getattr(self.spec, "engine", None)
        return getattr(layout, "batch_size", None) or self.BATCHES.get(self.device.type, self.BATCHES["cuda"])

    def seed(self, image_id: str) -> int:
        return image_seed(self.spec.seed, image_id)

    def sources(self, samples: Iterator[Sample | None], on_bad: Callable[[Sample, BadImage], None]) -> Iterator[Source | None]:
        """Read the samples' images ahead in threads; those that cannot be read go to `on_bad`.

        None among the samples stands for none at the moment; it is passed on once all before it are.
        """
        ahead: deque[tuple[Sample, Future[Tensor]]] = deque()
        more = True
        with ThreadPoolExecutor(max_workers=4, thread_name_prefix="read") as pool:
            while more or ahead:
                while more and len(ahead) < READ_AHEAD:
                    try:
                        sample = next(samples)
                    except StopIteration:
                        more = False
                        break
                    if sample is None:
                        break
                    ahead.append((sample, pool.submit(self.dataset.load, sample, self.size)))
                if ahead:
                    sample, image = ahead.popleft()
                    try:
                        found = self.source(sample, image.result())
                    except BadImage as problem:
                        on_bad(sample, problem)
                        continue
                    yield found
                elif more:
                    yield None

    def source(self, sample: Sample, image: Tensor) -> Source:
        """A sample with its image, rounded to 8 bits.  # (3, H, W)"""
        return Source(sample, (image * 255).round() / 255, self.seed(sample.image_id))

    @contextmanager
    def place(self, *keys: str) -> Iterator[None]:
        """Keep parts on the run's device for a while, so that large ones need not be there together."""
        moving = [part for part in (self.parts[key] for key in keys) if hasattr(part, "to")]
        try:
            for part in moving:
                part.to(self.device)
            yield
        finally:
            for part in moving if self.device.type != "cpu" else []:
                part.to("cpu")
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def judge(
        self, images: Sequence[Tensor], labels: Sequence[int], sources: Sequence[str] = ()
    ) -> list[tuple[bool | None, float, int]]:
        """The oracle's verdict on the label of each image, or None where it abstains; its score; and the class it sees.

        `sources` are the ids of the images that these were made from, where there are any.
        """

        def ask(batch: Tensor, asked: Sequence[tuple[int, str]]) -> list[tuple[bool | None, float, int]]:
            wanted = torch.tensor([label for label, _ in asked], device=batch.device)
            ids = [source for _, source in asked] if sources else ()
            part = f"oracle {self.spec.oracle.name}"  # type: ignore[attr-defined]
            with computing("float32", batch.device):
                return calls.judge(self.oracle, batch, wanted, len(self.names), part=part, sources=ids)

        return self.in_batches(images, ask, list(zip(labels, sources or [""] * len(labels), strict=True)))

    def in_batches(
        self, images: Sequence[Tensor], ask: Callable[..., Sequence[Any] | Tensor], extra: Sequence[Any] | None = None
    ) -> list[Any]:
        """Answers about images, asked in batches of one fixed size; `ask` gets a batch and, if given, what is `extra` to each.

        The last image is repeated to fill a batch, so that no answer depends on how many others there are.
        """
        found: list[Any] = []
        for start in range(0, len(images), self.batch):
            some = list(images[start : start + self.batch])
            sizes = sorted({f"{each.shape[-1]} × {each.shape[-2]}" for each in some})
            if len(sizes) > 1:
                raise BadData(f"images have different sizes, such as {sizes[0]} and {sizes[1]}; bring them to one with --size")
            idle = self.batch - len(some)
            batch = torch.stack(some + some[-1:] * idle).to(self.device)
            if extra is None:
                answers = ask(batch)
            else:
                own = list(extra[start : start + self.batch])
                answers = ask(batch, own + own[-1:] * idle)
            found += list(answers)[: len(some)]
        return found


def open_data(spec: Any, given: Given | None = None) -> ImageSet:
    """Open the run's data set alone, checked and cut to its limit, unless another process has done that."""
    head = given.head if given else None
    if head is not None and head.reader() is not None:
        return head
    if given and "dataset" in given.parts:
        dataset = given.parts["dataset"]
    else:
        dataset = registry.create("dataset", spec.data.name, spec.data.options)
    if head is not None:
        return head.read_by(dataset)
    found = ImageSet.of(dataset)
    if len(found) == 0:
        raise BadData(f"{spec.data.name}: no images")
    check_samples(found, name=spec.data.name)
    return found if spec.limit is None else found.limit(count=spec.limit)


def check_samples(dataset: Dataset, *, name: str) -> None:
    """Refuse labels that stand for no class, and ids that occur twice: two images would be taken for one."""
    keys = array("Q")
    for sample in dataset:
        if not 0 <= sample.label < len(dataset.classes):
            held = f"classes 0 to {len(dataset.classes) - 1}"
            raise BadData(f"{name}: {sample.image_id!r} has the label {sample.label}, and there are {held}; correct it")
        keys.append(key_of(sample.image_id))
    found, times = np.unique(np.array(keys), return_counts=True)
    if len(found) < len(keys):
        shared = {*found[times > 1].tolist()}
        twice = next(sample.image_id for sample in dataset if key_of(sample.image_id) in shared)
        raise BadData(f"{name}: image id {twice!r} occurs twice; every image of a data set needs an id of its own")


def device_of(name: str) -> torch.device:
    """The device of that name, tried out."""
    try:
        device = torch.device(name)
        if device.type == "cuda" and device.index is not None:
            torch.cuda.set_device(device)  # kernels, streams and graphs of our own go to the current one
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadSpec(f"device {name!r} cannot be used: {one_line(error)}; try --device cpu") from None
    return device
