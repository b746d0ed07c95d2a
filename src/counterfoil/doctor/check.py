"""From a checkpoint and a folder of photos to a number: choose the parts, check everything that can be checked, then run FMR.

The order is that of cost. Clean accuracy comes first, against the user's own figure, because most wrong results are wrong
there already. Oracles are tried on the photos themselves, and the one that knows the classes best is taken, or none.
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
import yaml

from counterfoil import protocols
from counterfoil.core.errors import BadData, BadPart, CounterfoilError, RunFailed
from counterfoil.core.progress import watching
from counterfoil.core.records import Estimate
from counterfoil.core.spec import PartSpec
from counterfoil.core.tables import parse_yaml, read_text
from counterfoil.doctor import SetUp, examine
from counterfoil.doctor.gradients import reconstruct
from counterfoil.doctor.oracles import PEOPLE, OracleTrial, best_of, try_all
from counterfoil.doctor.sample import FewImages, ask_in_batches, judge, percent, read_few, share
from counterfoil.doctor.timing import duration, time_protocol
from counterfoil.parts import calls, labels, registry, weights
from counterfoil.parts.contracts import Generator, to_device
from counterfoil.parts.datasets.image_set import ImageSet
from counterfoil.parts.models.recognise import recognise
from counterfoil.protocols.evaluate import as_model, object_name
from counterfoil.protocols.reading import Run, open_run
from counterfoil.protocols.workspace import Given, columns_of

FEWEST = 5  # photos of a class
MOST = 500  # photos that accuracy and oracles are tried on
FEW = 32  # photos that generators are tried on
TIMED = 4  # photos of the timing run on a CPU
KEEPS = 0.7  # share of its accuracy that the model keeps on reconstructions by a generator that will do
BUDGET = 10
UNUSUAL = {
    "background": {"words": "scenes", "templates": ["a photo of {a} {object} {nuisance}"]},
    "texture": {"words": "textures", "templates": ["a photo of {a} {nuisance} {object}"]},
    "material": {"words": "materials", "templates": ["a photo of {a} {object} {nuisance}"]},
}

Ask = Callable[[str], bool]
Tell = Callable[[str], None]
Reason = tuple[str, str, str]  # what, chosen, why


class Stopped(RunFailed):
    """Something has to be put right before a run means anything."""


@dataclass(frozen=True)
class Candidate:
    """A part of a preset, and what fetching it costs."""

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    megabytes: int = 0
    licence: str = ""
    about: str = ""

    @property
    def part(self) -> PartSpec:
        """The part, as a specification names it."""
        return PartSpec(name=self.name, options=dict(self.options))

    @property
    def here(self) -> bool:
        """Tell whether using it fetches nothing."""
        place = self.name.removeprefix("probe:").partition(":")[2]
        return not self.megabytes or not place or Path(place).expanduser().exists() or weights.is_cached(place)


@dataclass
class Checked:
    """Result of `check`: its choices, what they rest on, the verdict and the run."""

    choices: list[Reason] = field(default_factory=list)
    verdict: tuple[str, ...] = ()
    run: Run | None = None
    page: Path | None = None
    next: list[str] = field(default_factory=list)  # further runs whose settings are ready in files

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        chosen = [dict(zip(("what", "chosen", "why"), each, strict=True)) for each in self.choices]
        return {"choices": chosen, "verdict": list(self.verdict), "run": str(self.run.path) if self.run else None}


@dataclass(frozen=True)
class Preset:
    """The parts that are tried, the preferred first, and those of further runs, by protocol and by key."""

    generators: list[Candidate]
    oracles: list[Candidate]
    next: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def read_preset(path: Path | None = None, name: str = "natural") -> Preset:
    """A preset of a file, or of the one that comes with the package."""
    file = path or Path(__file__).with_name("presets.yaml")
    content = parse_yaml(read_text(file), what=str(file))
    chosen = content.get(name, content) if isinstance(content, Mapping) else {}
    try:
        generators, oracles = ([Candidate(**each) for each in chosen[key]] for key in ("generators", "oracles"))
        further = {
            protocol: {key: Candidate(**each) if isinstance(each, Mapping) else each for key, each in values.items()}
            for protocol, values in chosen.get("next", {}).items()
        }
    except (AttributeError, KeyError, TypeError) as error:
        raise BadPart(f"{file}: a preset has generators and oracles, each with a name and options; {error}") from None
    return Preset(generators, oracles, further)


def check(
    model: Any,
    photos: str | Path,
    *,
    arch: str | None = None,
    classes: str | Sequence[str] | None = None,
    expect: float | None = None,
    preset: Path | None = None,
    minutes: float | None = None,
    out: Path | None = None,
    device: str | None = None,
    ask: Ask = lambda question: True,
    tell: Tell = print,
) -> Checked:
    """Test a user's own model on their own photos, and choose everything that is not given.

    `model` is a checkpoint, a folder, a part's name, or a torch module whose outputs are `classes` or the folders; `photos` is a
    folder with one sub-folder per class. `expect` is the accuracy in per cent that the user knows the model to have. `minutes`
    fits the number of photos to the time. `ask` is asked before anything is fetched and before the run begins; Stopped is raised
    where something has to be put right first. The same call resumes a run that was interrupted.
    """
    done = Checked()

    def note(what: str, chosen: str, why: str) -> None:
        done.choices.append((what, chosen, why))
        tell(f"{what:<10} {chosen}: {why}")

    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    setup, part = _open(model, photos, arch, classes, device)
    note("model", part.name, _outputs(setup, given=classes is not None))
    few = _read(setup, tell)
    clean = _check_accuracy(setup, few, expect, tell)
    known = read_preset(preset)
    allowed = _allow([*known.oracles, *known.generators], ask, tell)
    oracle = _choose_oracle([each for each in known.oracles if each in allowed], setup, few, tell)
    note("oracle", oracle.part.name, str(oracle))
    chosen, generator, why = _choose_generator([each for each in known.generators if each in allowed], setup, oracle, clean, tell)
    note("generator", chosen.name, why)
    values = {
        "model": part, "data": setup.spec.data, "oracle": oracle.part, "generator": chosen.part, "device": device,
        "size": getattr(generator, "size", None) or setup.size, "search": {"budget": BUDGET},
    }  # fmt: skip
    wanted = protocols.get(protocols.USUAL).spec.model_validate(values)
    given = Given({part.name: setup.model, "oracle": oracle.oracle, "generator": generator})
    out = out or Path("runs") / f"check-{Path(str(model)).stem if isinstance(model, str | Path) else 'model'}"
    if (out / "run.json").exists():
        begun = open_run(out)
        wanted = wanted.model_copy(update={"limit": begun.spec.get("limit")})
        note("resumed", str(out), f"{begun.counts['images']} photos are done")
    else:
        time = time_protocol(wanted, TIMED if device == "cpu" else None, given)
        fits = len(setup.dataset) if minutes is None else min(max(time.images_in(60 * minutes), FEWEST), len(setup.dataset))
        wanted = wanted.model_copy(update={"limit": fits}) if fits < len(setup.dataset) else wanted
        some, takes = f"{fits} of {len(setup.dataset)} photos", duration(time.predict(fits))
        note("time", takes, f"for {some} on this machine")
        if not ask(f"{some} take about {takes}. Start?"):
            return done
    with watching(part.name) as (watch, _):
        done.run = Run(protocols.run(wanted, out, given=given, watch=watch).path)
    done.page = done.run.report()
    done.verdict = verdict(done.run, oracle)
    for protocol, parts in known.next.items():
        done.next += _prepare_next(protocol, parts, wanted, done.run)
    return done


def _prepare_next(protocol: str, parts: Mapping[str, Any], spec: Any, run: Run) -> list[str]:
    """Write the settings of a further run into a file; its command, what it tells and what it fetches, if it can be run."""
    needed = {key: each for key, each in parts.items() if isinstance(each, Candidate)}
    values = {
        "protocol": protocol,
        "oracle": spec.oracle,
        **{key: each.part for key, each in needed.items()},
        "device": spec.device,
    }
    if spec.model.name.startswith("object:") or ("painter" in needed and spec.oracle.name.startswith("probe:")):
        return []  # no file can name an object, and without photos to start from no oracle can be fitted
    if "painter" in needed:
        grid = {"objects": list(run.classes), "nuisances": UNUSUAL, "count": 25 * len(run.classes)}
        values |= {"grid": grid, "surrogates": [spec.model]}
    else:
        values |= {"model": spec.model, "data": spec.data}
    file = run.path / f"{protocol}.yaml"
    settings = protocols.get(protocol).spec.model_validate(values).model_dump(mode="json", include=set(values))
    file.write_text(yaml.safe_dump(settings, sort_keys=False), encoding="utf-8")
    missing = [each for each in needed.values() if not each.here]
    what = ", ".join(f"{each.name} ({each.megabytes:,} MB, {each.licence})" for each in missing)
    fetches = f"; it fetches about {sum(each.megabytes for each in missing):,} MB: {what}" if missing else ""
    return [f"counterfoil run {file}: {parts['about']}{fetches}"]


def verdict(run: Run, oracle: OracleTrial) -> tuple[str, ...]:
    """The result in three sentences: how much accuracy the model keeps, where it breaks, and how far to trust that."""
    found, scores = dict(run.results or {}), run.scores
    kept, before, after = scores["FMR"], scores["SA"], scores["PA"]
    if kept.value is None:
        return (f"There is no number: {kept.note or 'the oracle accepted no generated image'}.",)
    reach = f" ({kept.low:.0f} to {kept.high:.0f})" if kept.low is not None else ""
    first = (
        f"The model keeps {kept.value:.0f} %{reach} of its accuracy: it is right on {before.value:.0f} % of {before.n} "
        f"photos and on {after.value:.0f} % of the {after.n} generated images that still show their class."
    )
    known = [(Estimate.from_dict(each["PA"]), name) for name, each in found.get("per_class", {}).items() if "PA" in each]
    groups = sorted((each.value, name, each.n) for each, name in known if each.value is not None and each.n >= FEWEST)
    second = f"No class has the {FEWEST} images that it takes to be named."
    if groups:
        (low, worst, n), (high, best, _) = groups[0], groups[-1]
        second = f"It breaks most on {worst!r} ({low:.0f} % of {n} right) and least on {best!r} ({high:.0f} %)."
        if low == high:
            second = f"No class stands out: of each it gets {low:.0f} % right."
    random = scores.get("PA_random")
    control = "There is no control"
    if random is not None and random.value is not None:
        control = f"After random changes as long as these it is right on {random.value:.0f} %"
    third = f"{control}; the oracle is {str(oracle).partition(';')[0]}, so look at the images before you act."
    return first, second, third


def _open(
    model: Any, photos: str | Path, arch: str | None, classes: str | Sequence[str] | None, device: str
) -> tuple[SetUp, PartSpec]:
    """The photos, with enough of each class, and the model."""
    data = PartSpec(name=f"folder:{photos}")
    dataset = ImageSet.of(registry.create("dataset", data.name))
    counts = Counter(sample.label for sample in dataset)
    _refuse_few({name: counts[label] for label, name in enumerate(dataset.classes)}, "photos")
    named = labels.read_names(classes) if classes is not None else list(dataset.classes)
    if isinstance(model, str | Path):
        part = recognise(str(model), arch=arch, classes=named if classes is not None or not _knows_classes(model) else ())
        loaded = registry.create("model", part.name, part.options)
    else:
        loaded = as_model(model, named)
        part = PartSpec(name=object_name(loaded))
    loaded = to_device(loaded, device)
    size = getattr(loaded, "size", None) or 224
    spec = protocols.get("static").spec.model_validate({"model": part, "data": data, "device": device, "size": size})
    return SetUp(spec, part.name, loaded, dataset, columns_of(loaded, dataset, name=part.name), size), part


def _refuse_few(counts: Mapping[str, int], what: str) -> None:
    """Name the classes of which there are too few."""
    few = [f"{name} ({count})" for name, count in counts.items() if count < FEWEST]
    if few:
        more = f" and {len(few) - 5} more" if len(few) > 5 else ""
        raise BadData(f"fewer than {FEWEST} {what} of {', '.join(few[:5])}{more}; add some or take the class out")


def _knows_classes(model: str | Path) -> bool:
    """Tell whether a model brings the names of its outputs: a name of a part, or a folder with a configuration."""
    path = Path(model).expanduser()
    return not path.exists() or path.is_dir()


def _outputs(setup: SetUp, *, given: bool) -> str:
    """The number of outputs, and where their names come from."""
    outputs, folders = list(setup.model.classes), setup.dataset.classes
    if given:
        return f"{len(outputs)} outputs, named by --classes"
    if outputs == list(folders):
        return f"{len(outputs)} outputs, taken to be your folders in alphabetical order ({', '.join(folders[:3])}, …)"
    return f"{len(outputs)} outputs, of which {len(folders)} are your folders by name"


def _read(setup: SetUp, tell: Tell) -> FewImages:
    """The photos that model and oracles are tried on, if enough of each class are different."""
    few = read_few(setup, MOST)
    different: dict[int, set[bytes]] = {label: set() for label in range(len(setup.dataset.classes))}
    for image, label in zip(few.images.cpu(), few.labels.tolist(), strict=True):
        different[label].add(hashlib.sha256(image.numpy().tobytes()).digest())
    _refuse_few({setup.dataset.classes[label]: len(each) for label, each in different.items()}, "different readable photos")
    grey = int((few.images.amax(1) - few.images.amin(1) < 0.01).flatten(1).all(1).sum())
    if grey:
        tell(f"note       {grey} of {len(few)} photos are grey; a model trained in colour may do worse on them for that alone")
    return few


def _check_accuracy(setup: SetUp, few: FewImages, expect: float | None, tell: Tell) -> float:
    """Clean accuracy in per cent, against what the user expects; Stopped with the mistake that explains it where one does."""
    count = len(setup.model.classes)
    logits = ask_in_batches(lambda some: calls.logits_of(setup.model.logits, some.clone(), count), few.images)
    found = share(logits.argmax(1) == few.truth)
    tell(f"accuracy   {percent(found)}" + (f", {expect:g} % expected" if expect is not None else ""))
    diagnosis = examine(setup)
    lines = {each.mistake: f"{each.mistake}: {each.says} ({each.evidence}); {each.remedy}" for each in diagnosis.findings}
    suspected = [each.mistake for each in diagnosis.findings if each.severity == "mistake"]
    for name in suspected:
        if name != "gradients":  # a model at chance may have none
            raise Stopped(lines[name])
    low, high = found.low or 0.0, found.high or 0.0
    if expect is not None and not low - 1 <= expect <= high + 1:
        among = share(torch.tensor(setup.columns, device=logits.device)[logits[:, setup.columns].argmax(1)] == few.truth)
        if count > len(setup.columns) and (among.low or 0.0) - 1 <= expect <= (among.high or 0.0) + 1:
            raise Stopped(
                f"class subset: {expect:g} % fits its accuracy among the {len(setup.columns)} classes of your photos, "
                f"{percent(among)}; among all its {count} outputs it is {percent(found)}: expect that, or leave out the other "
                "outputs (grouped:)"
            )
        raise Stopped(
            f"accuracy is {percent(found)} where {expect:g} % was expected, and none of the usual mistakes explains it: are "
            "these photos like those the figure comes from, and are --classes in the order of the outputs?"
        )
    if low <= 100 / len(setup.dataset.classes):
        raise Stopped(
            f"the model is at chance on these photos, {percent(found)} right among {len(setup.dataset.classes)} classes; are "
            "--classes in the order of the outputs?"
        )
    if suspected:
        raise Stopped(lines[suspected[0]])
    for each in diagnosis.findings:
        tell(f"note       {each.mistake}: {each.says}; {each.remedy}")
    return found.value or 0.0


def _allow(candidates: Sequence[Candidate], ask: Ask, tell: Tell) -> list[Candidate]:
    """Those that may be used: all that are here, and what the user lets be fetched."""
    missing = [each for each in candidates if not each.here]
    if not missing:
        return list(candidates)
    total, room = sum(each.megabytes for each in missing), shutil.disk_usage(Path.home()).free // 10**6
    what = ", ".join(f"{each.name} ({each.megabytes:,} MB, {each.licence})" for each in missing)
    if weights.offline() or total > room:
        why = "the hub is switched off (HF_HUB_OFFLINE)" if weights.offline() else f"there are {room:,} MB left on the disk"
        fetch = False
    else:
        why, fetch = "not wanted", ask(f"Fetch up to {total:,} MB: {what}?")
    if not fetch:
        tell(f"note       not fetched, because {why}: {what}")
    return [each for each in candidates if fetch or each.here]


def _choose_oracle(candidates: Sequence[Candidate], setup: SetUp, few: FewImages, tell: Tell) -> OracleTrial:
    """The oracle that knows the classes best; Stopped if none does."""
    trials = try_all([each.part for each in candidates], setup, few, lambda line: tell(f"note       {line}"))
    best = best_of(trials)
    for each in trials:
        if each is not best:
            tell(f"note       oracle {each.part.name} is not used: {each}")
    if best is None:
        known = "; ".join(f"{each.part.name} is {each}" for each in trials) or "none can be used here"
        raise Stopped(f"no oracle knows these classes: {known}; name another in a preset (--preset FILE), or {PEOPLE}")
    return best


def _choose_generator(
    candidates: Sequence[Candidate], setup: SetUp, oracle: OracleTrial, clean: float, tell: Tell
) -> tuple[Candidate, Generator, str]:
    """The first generator whose plain reconstructions model and oracle still recognise, and what speaks for it."""
    for candidate in candidates:
        try:
            made = to_device(registry.create("generator", candidate.name, candidate.options), setup.spec.device)
            few = read_few(replace(setup, size=getattr(made, "size", None) or setup.size), FEW)
            images = reconstruct(made, few)
            right = float((ask_in_batches(setup.model.logits, images).argmax(1) == few.truth).float().mean())
            keeps, _ = judge(oracle.oracle, images, few.labels, few.ids, len(setup.dataset.classes))
            accepted = float((keeps == 1).float().mean())
        except CounterfoilError as problem:
            tell(f"note       generator {candidate.name} is not used: {problem}")
            continue
        why = f"on {len(few)} reconstructions the model is right on {right:.0%}, the oracle accepts {accepted:.0%}"
        why = f"{candidate.about}; {why}" if candidate.about else why
        if 100 * right >= KEEPS * clean and accepted >= KEEPS:
            return candidate, made, why
        tell(f"note       generator {candidate.name} is not used: {why}")
    raise Stopped("no generator reproduces these photos well enough; name one in a preset (--preset FILE)")
