"""Puts a run's parts together: found by name, on the right device, with labels that fit."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from counterfoil.core.errors import BadData, BadImage, BadPart, BadSpec, one_line
from counterfoil.core.lots import lot
from counterfoil.core.spec import FmrSpec, LanceSpec, PartSpec, SearchSpec
from counterfoil.engine.scheduler import Engine, Job
from counterfoil.parts import labels, registry
from counterfoil.parts.contracts import Dataset, Generator, Model, Oracle, Sample, State, provenance_of, to_device
from counterfoil.parts.datasets.image_set import ImageSet
from counterfoil.parts.fast.dtypes import check_precision
from counterfoil.parts.generators.sparse.mask import load as load_mask
from counterfoil.parts.generators.sparse.windowed import masked
from counterfoil.protocols import independence
from counterfoil.store.files import key_of

READ_AHEAD = 64  # pictures read before the engine asks for them


@dataclass(frozen=True)
class Assembly:
    """The parts of a run, ready to work together."""

    spec: FmrSpec
    model: Model
    dataset: ImageSet
    generator: Generator
    oracle: Oracle
    columns: list[int]  # the model's output for each of the data's classes
    size: int
    caution: str | None = None  # why the oracle's word may not count, where that was forced

    def engine(self, search: SearchSpec | None = None, *, keep_places: bool = False) -> Engine:
        """An engine over these parts."""
        return Engine(
            self.model,
            self.generator,
            self.oracle,
            columns=[*self.columns, *self.beyond],
            search=search or self.spec.search,
            layout=self.spec.engine,
            device=self.spec.device,
            pixels=len(self.dataset) * self.size**2,
            classes=len(self.dataset.classes),
            keep_places=keep_places,
        )

    def fitted_engine(self) -> Engine:
        """An engine that has found out how many images fit into its device."""
        engine = self.engine()
        engine.fit(torch.rand(3, self.size, self.size, generator=torch.Generator().manual_seed(0)))
        return engine

    @cached_property
    def beyond(self) -> list[int]:
        """The model's outputs that stand for none of the data's classes."""
        return sorted({*range(len(self.model.classes))} - {*self.columns})

    def answer(self, place: int) -> tuple[int, str]:
        """What the engine noted as an answer, for the records: a class of the data, or -1 and what the model calls it."""
        if place < len(self.columns):
            return place, ""
        return -1, str(self.model.classes[self.beyond[place - len(self.columns)]])

    def jobs(self, samples: Iterator[Sample], on_bad: Callable[[Sample, BadImage], None]) -> Iterator[Job]:
        """The samples' pictures, read ahead by threads; unreadable ones go to `on_bad`."""
        with ThreadPoolExecutor(max_workers=4, thread_name_prefix="read") as pool:
            ahead = [(sample, pool.submit(self.dataset.load, sample, self.size)) for sample in islice(samples, READ_AHEAD)]
            while ahead:
                sample, picture = ahead.pop(0)
                ahead.extend((later, pool.submit(self.dataset.load, later, self.size)) for later in islice(samples, 1))
                try:
                    job = self.job(sample, picture.result())
                except BadImage as problem:
                    on_bad(sample, problem)
                    continue
                yield job

    def job(self, sample: Sample, picture: Tensor) -> Job:
        """A sample with its picture, as seen in 8 bits, like everything that is made of it.  # (3, H, W)"""
        return Job(sample.image_id, (picture * 255).round() / 255, sample.label, image_seed(self.spec.seed, sample.image_id))


@dataclass(frozen=True)
class Given:
    """Parts handed over as objects instead of names, and what need not be found out again."""

    parts: dict[str, Any] = field(default_factory=dict)  # by role
    head: ImageSet | None = None  # of the data set, from a process that has listed it


def assemble(spec: FmrSpec, given: Given | None = None) -> Assembly:
    """Find, build, place and bind the parts that `spec` names, on a device that can do what is asked."""
    device = device_of(spec.device)
    check_precision(spec.engine.precision, device)

    def part(role: str, named: PartSpec) -> Any:
        built = given.parts[role] if given and role in given.parts else registry.create(role, named.name, named.options)
        return to_device(built, device)

    dataset = open_data(spec, given)
    model: Model = part("model", spec.model)
    columns = columns_of(model, dataset, name=spec.model.name)
    check_guidance(spec.search, model, name=spec.model.name)
    generator: Generator = part("generator", spec.generator)
    generator = with_class_numbers(generator, dataset, name=spec.generator.name)
    if spec.search.mask is not None:
        generator = masked(generator, load_mask(spec.search.mask))
    oracle: Oracle = part("oracle", spec.oracle).bind(dataset.classes)
    caution = independence.check(model, oracle, force=spec.force)
    spec = with_step(spec, generator)
    size = size_of(spec, f"generator {spec.generator.name}", generator.size, model)
    return Assembly(spec, model, dataset, generator, oracle, columns, size, caution)


class ClassNumbers:
    """A class-conditional generator that takes labels of the data and tells its network its own numbers for them."""

    def __init__(self, inner: Generator, numbers: Sequence[int]) -> None:
        self.inner, self.numbers = inner, list(numbers)
        self.moving, self.size, self.step_size = inner.moving, inner.size, inner.step_size
        self.render, self.step = inner.render, inner.step

    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        """The inner generator's start, with labels in its own numbers."""
        return self.inner.start(images, torch.tensor(self.numbers, device=labels.device)[labels], seeds)

    def to(self, device: torch.device | str) -> ClassNumbers:
        """The same with the inner generator on a device."""
        return ClassNumbers(to_device(self.inner, device), self.numbers)

    def provenance(self) -> dict[str, str]:
        """The inner generator's account."""
        return provenance_of(self.inner)


def with_class_numbers(generator: Generator, dataset: Dataset, *, name: str) -> Generator:
    """The generator, told its own class numbers by name where it is class-conditional."""
    known = getattr(generator, "classes", None)
    if not known:
        return generator
    wanted = getattr(dataset, "aliases", None)
    aliases = getattr(generator, "aliases", None)
    return ClassNumbers(
        generator, labels.match(dataset.classes, known, what=f"generator {name}", aliases=aliases, wanted_aliases=wanted)
    )


def with_step(spec: FmrSpec, generator: Generator) -> FmrSpec:
    """The specification with the generator's own step where none is given, so that a run says what it used."""
    if spec.search.step is not None:
        return spec
    return spec.model_copy(update={"search": spec.search.model_copy(update={"step": float(generator.step_size)})})


def open_data(spec: FmrSpec | LanceSpec, given: Given | None = None) -> ImageSet:
    """The run's data set alone, checked and cut to its limit, unless another process has done that."""
    head = given.head if given else None
    if head is not None and head.reader() is not None:
        return head
    dataset: Dataset
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
    return found if spec.limit is None else found.limited(count=spec.limit)


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


def check_guidance(search: SearchSpec, model: Model, *, name: str) -> None:
    """Refuse steps along, or as long as, a gradient that is not there."""
    if search.guidance == "gradient" and not model.differentiable:
        raise BadSpec(f"guidance: gradient given, but model {name} has no gradients; leave guidance out, or set guidance=search")
    searched = search.guidance == "search" or (search.guidance == "auto" and not model.differentiable)
    if search.norm == "raw" and (searched or not model.differentiable):
        why = "a search takes none" if model.differentiable else f"model {name} has none"
        raise BadSpec(f"norm: raw given, a step as long as the gradient, but {why}; set norm=l2 or norm=sign")


def image_seed(seed: int, image_id: str) -> int:
    """An image's own seed, from the run's seed and the image's id alone."""
    return lot(seed, image_id) % 2**62


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


def columns_of(model: Model, dataset: Dataset, *, name: str) -> list[int]:
    """The model's output for each of the data's classes."""
    return labels.match(
        dataset.classes,
        model.classes,
        what=f"model {name}",
        aliases=getattr(model, "aliases", None),
        wanted_aliases=getattr(dataset, "aliases", None),
    )


def size_of(spec: FmrSpec | LanceSpec, maker: str, side: int | None, model: Model) -> int:
    """The side of the pictures: what is asked for, what their `maker` works at, or what the model takes."""
    if spec.size and side and spec.size != side:
        raise BadSpec(f"size {spec.size} given, but {maker} works at {side}")
    size = spec.size or side or getattr(model, "size", None)
    if size is None:
        raise BadPart(
            f"neither {maker} nor model {spec.model.name} says its picture size; give one, "
            "as in --size 224, or size=224 from Python"
        )
    return int(size)
