"""The parts of a run at work: built from a specification, checked against each other, asked in batches of one size."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from array import array
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib.metadata import PackageNotFoundError, entry_points, packages_distributions, version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import numpy as np
import torch
from torch import Tensor

from counterfoil.core.errors import BadData, BadImage, BadPart, BadSpec, one_line
from counterfoil.core.naming import image_seed
from counterfoil.core.spec import PartSpec, RunSpec
from counterfoil.parts import calls, registry
from counterfoil.parts.contracts import Dataset, Sample, Trait, caution_for, describe, provenance_of, to_device
from counterfoil.parts.datasets.image_set import TRIED, ImageSet
from counterfoil.parts.fast.dtypes import computing
from counterfoil.protocols import independence
from counterfoil.protocols.class_reader import Reading, reading
from counterfoil.store.files import key_of

S = TypeVar("S", bound=RunSpec)

LIBRARIES = ("counterfoil", "torch", "torchvision", "timm", "transformers", "diffusers", "open_clip_torch", "numpy", "pillow")
SIZED = 8  # images whose own size is looked at
READ_AHEAD = 64  # images read before they are asked for
MAKERS = ("generator", "editor", "painter")
"""The roles whose parts make images, and so decide their size."""
ROLES = {"data": "dataset", "others": "model", "surrogates": "model"}
"""The role behind a key of a specification that is not called like it."""
_VERSIONS = ("library",)  # recorded with the run; a newer one is no reason to process everything again


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
        for key, named, alone in parts_of(spec):
            role, own = role_of(key), key if alone else named.name
            if role == "model" and any(other.name == named.name for other, _ in readers):
                raise BadSpec(f"a model is named twice: {named.name}; name each once")
            if given.elsewhere:
                parts[own] = None
                readers += [(named, None)] if role == "model" else []
                continue
            part = given.parts.get(named.name, given.parts.get(role) if alone else None)
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
            cautions = [independence.check(each.model, parts["oracle"], force=spec.force) for _, each in readers]
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
        """A part's options as it is built with them."""
        return named.options

    def __getattr__(self, key: str) -> Any:
        if key != "parts" and key in self.__dict__.get("parts", {}):
            return self.parts[key]
        raise AttributeError(f"{type(self).__name__} has no part {key!r}")

    # What the parts say of themselves

    @cached_property
    def size(self) -> int:
        """The side of the images: what is asked for, what their maker works at, or what the first model takes."""
        key = next((key for key in MAKERS if key in self.parts), None)
        maker = f"{key} {getattr(self.spec, key).name}" if key else "the run's data"
        side = getattr(self.parts[key], "size", None) if key else None
        if self.spec.size and side and self.spec.size != side:
            raise BadSpec(f"size {self.spec.size} given, but {maker} works at {side}")
        named, first = self.readers[0] if self.readers else (None, None)
        size = self.spec.size or side or getattr(first.model if first else None, "size", None)
        if size is None:
            others = f" nor model {named.name}" if named else ""
            raise BadPart(f"neither {maker}{others} says its image size; give one, as in --size 224, or size=224 from Python")
        return int(size)

    def account(self) -> dict[str, Any]:
        """Versions, hashes and hardware of the parts, for `run.json`."""
        own = registry.function_hashes(self.spec.model_dump(mode="json"))
        return {
            **({"caution": self.caution} if self.caution else {}),
            **({"cautions": assumed} if (assumed := self._assumptions()) else {}),
            **({"class_ids": {name: list(ids) for name, ids in self.class_ids.items()}} if self.class_ids is not None else {}),
            "versions": versions(),
            "code": code_hash({*packages_of(self.spec), *(_package(part) for part in (*self.parts.values(), self.dataset))}),
            **({"functions": own} if own else {}),
            "size": self.size if self._sized else 0,
            "parts": {key: part.provenance() for key, part in self.parts.items() if hasattr(part, "provenance")},
            "hardware": _hardware(self.spec.device),
        }

    def provenance(self, account: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Provenance of the run for `run.json`: an account of the parts and of the data."""
        account = account or self.account()
        return dict(account) if self.dataset is None else with_data(account, self.dataset)

    @property
    def _sized(self) -> bool:
        """Tell whether the images of the run have one size."""
        return self.spec.size is not None or self.class_ids is None

    def traits(self) -> Iterator[tuple[str, Trait]]:
        """List what every part gets and assumes, by what the part is called: `model timm:resnet50`."""
        if self._sized:
            key = next((key for key in MAKERS if key in self.parts), None)
            decided = (
                "--size" if self.spec.size else f"the {key}" if key and getattr(self.parts[key], "size", None) else "the model"
            )
            yield "images", Trait("size", f"{self.size}×{self.size}", decided)
        for key, named, alone in parts_of(self.spec):
            part = self.parts.get(key if alone else named.name)
            for trait in describe(part) if part is not None else ():
                yield f"{role_of(key)} {named.name}", trait

    def introduction(self) -> list[str]:
        """Say in lines what each part gets and assumes, then the cautions for what was not asked for."""
        by_part: dict[str, list[Trait]] = {}
        for name, trait in self.traits():
            by_part.setdefault(name, []).append(trait)
        lines = [f"{name}: {'; '.join(f'{each.what} {each}' for each in traits)}" for name, traits in by_part.items()]
        return [*lines, *(f"take care: {caution}" for caution in self.cautions())]

    def cautions(self) -> list[str]:
        """List what was not asked for and may harm results."""
        return [*self._assumptions(), *([self.caution] if self.caution else [])]

    def _assumptions(self) -> list[str]:
        told = [(name, caution_for(trait, self.names)) for name, trait in self.traits()]
        return [*(f"{name}: {caution}" for name, caution in told if caution), *self._shrinking()]

    def _shrinking(self) -> Iterator[str]:
        """Warn where images are made smaller than both the data's own and what a model takes, unless asked for."""
        key = next((key for key in MAKERS if getattr(self.parts.get(key), "size", None)), None)
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
        named = next(named for known, named, alone in parts_of(self.spec) if (known if alone else named.name) == key)
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
        """An image's own seed."""
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

    def predict(self, reader: Reading, images: Sequence[Tensor], labels: Sequence[int]) -> list[dict[str, Any]]:
        """A model's answers about images, as plain values."""
        return self.in_batches(images, reader.looks, labels)

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
        self, images: Sequence[Tensor], ask: Callable[..., Sequence[Any]], extra: Sequence[Any] | None = None
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


def parts_of(spec: RunSpec) -> Iterator[tuple[str, PartSpec, bool]]:
    """The parts that a specification names, with their key and whether the key has one alone; the data set left out."""
    for key in type(spec).model_fields:
        value = getattr(spec, key)
        if isinstance(value, PartSpec) and key != "data":
            yield key, value, True
        elif isinstance(value, tuple) and value and all(isinstance(each, PartSpec) for each in value):
            yield from ((key, each, False) for each in value)


def role_of(key: str) -> str:
    """The role of the parts under a key of a specification."""
    return ROLES.get(key, key if key in registry.ROLES else key.removesuffix("s"))


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


def with_data(account: Mapping[str, Any], dataset: Dataset) -> dict[str, Any]:
    """An account of a run's parts, and of its data set as one of them."""
    own = {"dataset": provenance_of(dataset)} if hasattr(dataset, "provenance") else {}
    return {**account, **of_data(dataset), "parts": {**account["parts"], **own}}


def of_data(dataset: Dataset) -> dict[str, Any]:
    """Number of a run's images, and one hash over their ids and labels; every trial keeps the hash of its own pixels."""
    digest = hashlib.sha256()
    for sample in dataset:
        digest.update(f"{sample.image_id}\0{sample.label}\n".encode())
    return {"data": digest.hexdigest(), "images": len(dataset)}


def versions(libraries: Sequence[str] = LIBRARIES) -> dict[str, str]:
    """Python's version and those of the libraries that are installed; by default of those that decide a number."""
    found = {"python": platform.python_version()}
    for name in libraries:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def packages_of(spec: RunSpec) -> set[str]:
    """Name the packages whose entry points a specification names, for parts and data and for the parts inside those."""
    named = set(re.findall(r"([\w-]+):", json.dumps(spec.model_dump(mode="json"))))
    entries = (entry for role in registry.ROLES for entry in entry_points(group=f"counterfoil.{role}s"))
    protocol = entry_points(group="counterfoil.protocols", name=spec.protocol)
    return {entry.module.partition(".")[0] for entry in (*protocol, *(each for each in entries if each.name in named))}


def _package(part: Any) -> str:
    return type(part).__module__.partition(".")[0]


def code_hash(packages: Collection[str] = ()) -> str:
    """Hash the Python files of this package and of every other one that a part comes from.

    Libraries whose versions are recorded are left out.
    """
    recorded = {top for top, names in packages_distributions().items() if {name.lower() for name in names} & {*LIBRARIES}}
    digest = hashlib.sha256()
    for top in sorted({"counterfoil", *packages} - (recorded - {"counterfoil"}) - {"builtins", "__main__"}):
        found = find_spec(top)
        for folder in sorted(found.submodule_search_locations or ()) if found else ():
            for path in sorted(Path(folder).rglob("*.py")):
                digest.update(f"{top}/{path.relative_to(folder).as_posix()}".encode())
                digest.update(path.read_bytes())
        if found and not found.submodule_search_locations and str(found.origin).endswith(".py"):
            digest.update(top.encode() + Path(str(found.origin)).read_bytes())
    return digest.hexdigest()


def _hardware(device: str) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "machine": platform.machine(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": device,
    }
    if torch.device(device).type == "cuda":
        facts["gpu"] = torch.cuda.get_device_name(device)
    return facts
