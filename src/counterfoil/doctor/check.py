"""From a checkpoint and a folder of photos to a number: choose the parts, check everything that can be checked, then run FMR.

The order is that of cost. Clean accuracy comes first, against the user's own figure, because most wrong results are wrong
there already. Oracles are tried on the photos themselves, and the one that knows the classes best is taken, or none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from scipy.stats import beta
from torch import Tensor

from counterfoil import protocols
from counterfoil.core.errors import BadData, BadImage, BadPart, CounterfoilError, RunFailed
from counterfoil.core.spec import PartSpec
from counterfoil.core.tables import parse_yaml, read_text
from counterfoil.doctor import SetUp, examine
from counterfoil.doctor.sample import ask_in_batches, verdicts
from counterfoil.doctor.timing import duration, time_protocol
from counterfoil.parts import calls, labels, registry, weights
from counterfoil.parts.contracts import Oracle, to_device
from counterfoil.parts.datasets.image_set import ImageSet
from counterfoil.parts.models.recognise import recognise
from counterfoil.protocols import independence
from counterfoil.protocols.base import Watch
from counterfoil.protocols.class_reader import columns_of
from counterfoil.protocols.workspace import Given
from counterfoil.store import Run

FEWEST = 5  # photos of a class
MOST = 500  # photos that accuracy and oracles are tried on
TIMED = 4  # photos of the timing run on a CPU
KNOWS = 0.8  # share of the photos an oracle has to be right on
KEEPS = 0.7  # share of its accuracy that the model keeps on reconstructions by a generator that will do
SEARCH = {"budget": 10}

Ask = Callable[[str], bool]
Tell = Callable[[str], None]


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
    def here(self) -> bool:
        """Tell whether using it fetches nothing."""
        place = self.name.removeprefix("probe:").partition(":")[2]
        return not self.megabytes or not place or Path(place).expanduser().exists() or weights.is_cached(place)


@dataclass(frozen=True)
class Trial:
    """An oracle tried on the photos: is it right, does it accept what it should not, what does it confuse."""

    candidate: Candidate
    oracle: Oracle
    right: int
    images: int
    false_accepts: int  # photos that it would accept as a class they do not show
    nonsense: int  # scrambled photos that it still accepts as their class
    confused: str  # the pair of classes it mistakes most often

    @property
    def share(self) -> float:
        """The share of the photos that it is right on."""
        return self.right / self.images

    def __str__(self) -> str:
        told = f"right on {self.share:.0%} of {self.images} photos, accepts {self.false_accepts} under a wrong class"
        told += f" and {self.nonsense} scrambled ones" if self.nonsense else ""
        return f"{told}; most often {self.confused}" if self.confused else told


@dataclass
class Checked:
    """Result of `check`: its choices, what they rest on, the verdict and the run."""

    choices: list[tuple[str, str, str]] = field(default_factory=list)  # what, chosen, why
    verdict: tuple[str, ...] = ()
    run: Run | None = None
    page: Path | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        chosen = [dict(zip(("what", "chosen", "why"), each, strict=True)) for each in self.choices]
        return {"choices": chosen, "verdict": list(self.verdict), "run": str(self.run.path) if self.run else None}


def presets(path: Path | None = None, name: str = "natural") -> tuple[list[Candidate], list[Candidate]]:
    """The generators and oracles of a preset: of a file, or of the one that comes with the package."""
    file = path or Path(__file__).with_name("presets.yaml")
    content = parse_yaml(read_text(file), what=str(file))
    chosen = content.get(name, content) if isinstance(content, Mapping) else {}
    try:
        generators, oracles = ([Candidate(**each) for each in chosen[key]] for key in ("generators", "oracles"))
    except (KeyError, TypeError) as error:
        raise BadPart(f"{file}: a preset has generators and oracles, each with a name and options; {error}") from None
    return generators, oracles


def check(
    model: str,
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
    watch: Watch | None = None,
) -> Checked:
    """Test a user's own model on their own photos, and choose everything that is not given.

    `model` is a checkpoint, a folder or a part's name, `photos` a folder with one sub-folder per class. `expect` is the
    accuracy in per cent that the user knows the model to have. `minutes` fits the number of photos to the time. `ask` is asked
    before anything is fetched and before the run begins; Stopped is raised where something has to be put right first.
    """
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    done = Checked()
    dataset = _photos(photos)
    data = PartSpec(name=f"folder:{photos}")
    named = labels.read_names(classes) if classes is not None else list(dataset.classes)
    part = recognise(model, arch=arch, classes=named if classes is not None or not _knows_classes(model) else ())
    loaded = to_device(registry.create("model", part.name, part.options), device)
    _note(done, tell, "model", part.name, _names_of(loaded, dataset, given=classes is not None))
    size = getattr(loaded, "size", None) or 224
    spec = protocols.get("static").spec.model_validate({"model": part, "data": data, "device": device, "size": size})
    setup = SetUp(spec, part.name, loaded, dataset, columns_of(loaded, dataset, name=part.name), size)
    images, truth, ids = _read(setup)
    right = _check_accuracy(setup, images, truth, expect, tell)

    generators, oracles = presets(preset)
    allowed = _allow([*oracles, *generators], ask, tell)
    trials = list(_try_oracles([each for each in oracles if each in allowed], setup, images, truth, ids, tell))
    best = _best(trials)
    _note(done, tell, "oracle", best.candidate.name, str(best))
    given = Given({"model": loaded, "oracle": best.oracle})
    generator = _choose_generator([each for each in generators if each in allowed], setup, best, images, truth, right, done, tell)
    given.parts["generator"] = generator[1]
    values = {
        "model": part, "data": data, "device": device, "size": getattr(generator[1], "size", None) or size, "search": SEARCH,
        "generator": {"name": generator[0].name, **generator[0].options},
        "oracle": {"name": best.candidate.name, **best.candidate.options},
    }  # fmt: skip
    fmr = protocols.get(protocols.USUAL)
    wanted = fmr.spec.model_validate(values)
    took = time_protocol(wanted, TIMED if device == "cpu" else None, given)
    fits = len(dataset)
    if minutes is not None:
        fits = max(FEWEST, min(fits, int((minutes * 60 - sum(took.once.values())) / max(took.seconds + took.around, 1e-9))))
        wanted = wanted.model_copy(update={"limit": fits}) if fits < len(dataset) else wanted
    why = f"{fits} photos take about {duration(took.predict(fits))} on this machine"
    _note(done, tell, "time", duration(took.predict(fits)), why)
    if not ask(f"{why}. Start?"):
        return done
    out = out or Path("runs") / f"check-{Path(model).stem or 'model'}"
    done.run = protocols.run(wanted, out, given=given, watch=watch or (lambda progress: None), tell=lambda line: None)
    from counterfoil.protocols.reading import write_report

    done.page = write_report([done.run], out / "report")
    done.verdict = verdict(done.run, best)
    return done


def verdict(run: Run, oracle: Trial) -> tuple[str, ...]:
    """The result in three sentences: how much accuracy the model keeps, where it breaks, and how far to trust that."""
    found = dict(run.results or {})
    kept, before, after = (found[name] for name in ("FMR", "SA", "PA"))
    if kept["value"] is None:
        return (f"There is no number: {kept.get('note', 'the oracle accepted no generated image')}.",)
    reach = f" ({kept['low']:.0f} to {kept['high']:.0f})" if kept.get("low") is not None else ""
    first = (
        f"The model keeps {kept['value']:.0f} %{reach} of its accuracy: it is right on {before['value']:.0f} % of {before['n']} "
        f"photos and on {after['value']:.0f} % of the {after['n']} generated images that still show their class."
    )
    known = [(each["PA"]["value"], name, each["PA"]["n"]) for name, each in found.get("per_class", {}).items() if "PA" in each]
    groups = sorted(each for each in known if each[0] is not None and each[2] >= FEWEST)
    second = "No class has enough images to be named."
    if groups and groups[0][0] < groups[-1][0]:
        (low, worst, n), (high, best, _) = groups[0], groups[-1]
        second = f"It breaks most on {worst!r} ({low:.0f} % of {n} right) and least on {best!r} ({high:.0f} %)."
    random = found.get("PA_random", {}).get("value")
    control = f"After random changes it is right on {random:.0f} %" if random is not None else "There is no control"
    third = f"{control}; the oracle is right on {oracle.share:.0%} of your photos, so look at the images before you act."
    return first, second, third


def _photos(place: str | Path) -> ImageSet:
    dataset = ImageSet.of(registry.create("dataset", f"folder:{place}"))
    counts = Counter(sample.label for sample in dataset)
    few = [f"{name} ({counts[label]})" for label, name in enumerate(dataset.classes) if counts[label] < FEWEST]
    if few:
        more = f" and {len(few) - 5} more" if len(few) > 5 else ""
        raise BadData(f"{place}: fewer than {FEWEST} photos of {', '.join(few[:5])}{more}; add some or take the class out")
    return dataset


def _knows_classes(model: str) -> bool:
    """Tell whether a model brings the names of its outputs: a name of a part, or a folder with a configuration."""
    path = Path(model).expanduser()
    return not path.exists() or path.is_dir()


def _names_of(model: Any, dataset: ImageSet, *, given: bool) -> str:
    """The source of the outputs' names."""
    outputs = len(model.classes)
    if given:
        return f"{outputs} outputs, named by --classes"
    if list(model.classes) == list(dataset.classes):
        return f"{outputs} outputs, taken to be your folders in alphabetical order ({', '.join(dataset.classes[:3])}, …)"
    return f"{outputs} outputs, of which {len(dataset.classes)} are your folders by name"


def _note(done: Checked, tell: Tell, what: str, chosen: str, why: str) -> None:
    done.choices.append((what, chosen, why))
    tell(f"{what:<10} {chosen}: {why}")


def _read(setup: SetUp) -> tuple[Tensor, Tensor, list[str]]:
    """The photos, their labels and ids."""
    found, truth, ids, seen = [], [], [], set()
    for sample in setup.dataset.limit(count=MOST):
        try:
            image = (setup.dataset.load(sample, setup.size) * 255).round() / 255
        except BadImage:
            continue  # the run names it
        seen.add(hash(image.numpy().tobytes()))
        found.append(image)
        truth.append(sample.label)
        ids.append(sample.image_id)
    if len(seen) < FEWEST * len(set(truth)):
        raise BadData(
            f"there are {len(seen)} different readable photos of {len(set(truth))} classes; {FEWEST} of each are needed"
        )
    return torch.stack(found).to(setup.spec.device), torch.tensor(truth, device=setup.spec.device), ids


def _check_accuracy(setup: SetUp, images: Tensor, truth: Tensor, expect: float | None, tell: Tell) -> float:
    """Clean accuracy, against what the user expects, and the mistake that explains it where one does."""
    count, columns = len(setup.model.classes), torch.tensor(setup.columns, device=images.device)
    logits = ask_in_batches(lambda some: calls.logits_of(setup.model.logits, some.clone(), count), images)
    hits, n = int((logits.argmax(1) == columns[truth]).sum()), len(truth)
    low = float(beta.ppf(0.025, hits, n - hits + 1)) if hits else 0.0
    high = float(beta.ppf(0.975, hits + 1, n - hits)) if hits < n else 1.0
    tell(f"accuracy   {hits / n:.1%} of {n} photos ({low:.1%} to {high:.1%})" + (f", {expect:g} % expected" if expect else ""))
    diagnosis = examine(setup)
    mistakes = {each.mistake: f"{each.mistake}: {each.says} ({each.evidence}); {each.remedy}" for each in diagnosis.findings}
    suspected = [each.mistake for each in diagnosis.findings if each.severity == "mistake"]
    if explained := [mistakes[name] for name in suspected if name != "gradients"]:
        raise Stopped(explained[0])
    if expect is not None and not low * 100 - 1 <= expect <= high * 100 + 1:
        raise Stopped(
            f"accuracy is {hits / n:.1%} of {n} photos where {expect:g} % was expected, and none of the usual mistakes explains "
            "it: are these photos like those the figure comes from, and are --classes in the order of the outputs?"
        )
    if low <= 1 / len(setup.dataset.classes):
        raise Stopped(
            f"the model is at chance on these photos: {hits} of {n} right among {len(setup.dataset.classes)} classes; are "
            "--classes in the order of the outputs?"
        )
    if suspected:
        raise Stopped(mistakes[suspected[0]])
    for each in diagnosis.findings:
        tell(f"note       {each.mistake}: {each.says}")
    return hits / n


def _allow(candidates: Sequence[Candidate], ask: Ask, tell: Tell) -> list[Candidate]:
    """Those that may be used: all that are here, and what the user lets be fetched."""
    missing = [each for each in candidates if not each.here]
    fetch = False
    if missing:
        total = sum(each.megabytes for each in missing)
        what = ", ".join(f"{each.name} ({each.megabytes} MB, {each.licence})" for each in missing)
        fetch = not weights.offline() and ask(f"Fetch up to {total:,} MB: {what}?")
        if not fetch:
            tell(f"note       not fetched: {what}")
    return [each for each in candidates if fetch or each.here]


def _try_oracles(
    candidates: Sequence[Candidate], setup: SetUp, images: Tensor, truth: Tensor, ids: Sequence[str], tell: Tell
) -> Iterator[Trial]:
    """Each oracle on the photos; those that cannot be used are named."""
    names = setup.dataset.classes
    for candidate in candidates:
        try:
            oracle = to_device(registry.create("oracle", candidate.name, candidate.options), setup.spec.device)
            independence.check(setup.model, oracle)
            bound = calls.bind(oracle, names)
            if getattr(bound, "cross_fitted", False):
                bound = bound.fit(setup.dataset, size=setup.size, device=setup.spec.device)  # type: ignore[attr-defined]
            yield _try_oracle(candidate, bound, images, truth, ids, names)
        except CounterfoilError as problem:
            tell(f"note       oracle {candidate.name} is not used: {problem}")


def _try_oracle(
    candidate: Candidate, oracle: Oracle, images: Tensor, truth: Tensor, ids: Sequence[str], names: Sequence[str]
) -> Trial:
    """An oracle's answers about the photos, and about the same ones with their pixels scrambled."""
    asked = list(zip(truth.tolist(), _judge_photos(oracle, images, truth, ids, len(names)), strict=True))
    wrong = [(was, seen) for was, (_, seen) in asked if seen != was]
    sure = sum(1 for was, (keeps, seen) in asked if seen != was and keeps is not None)
    order = torch.randperm(images.shape[-1] * images.shape[-2], generator=torch.Generator().manual_seed(0)).to(images.device)
    scrambled = images.flatten(2)[:, :, order].reshape(images.shape)
    nonsense = int((verdicts(oracle, scrambled, truth, len(names)) == 1).sum())
    pairs = Counter(pair for pair in wrong if pair[1] >= 0).most_common(1)
    confused = "".join(f"{names[was]} taken for {names[seen]} ({times} times)" for (was, seen), times in pairs)
    return Trial(candidate, oracle, len(asked) - len(wrong), len(asked), sure, nonsense, confused)


def _judge_photos(
    oracle: Oracle, images: Tensor, truth: Tensor, ids: Sequence[str], classes: int
) -> list[tuple[bool | None, int]]:
    """The oracle's answer for each photo, and the class that it sees."""
    found = []
    for start in range(0, len(images), 16):
        rows = slice(start, start + 16)
        said = calls.judge(oracle, images[rows].clone(), truth[rows], classes, part="the oracle", sources=ids[rows])
        found += [(keeps, seen) for keeps, _, seen in said]
    return found


def _best(trials: Sequence[Trial]) -> Trial:
    """The oracle that knows the classes best; Stopped if none does."""
    people = "have people judge: 'run --oracle human:', then 'review'"
    if not trials:
        raise Stopped(f"no oracle can be used here; name one in a preset (--preset FILE), or {people}")
    best = max(trials, key=lambda each: (each.share, -each.false_accepts))
    if best.share < KNOWS:
        raise Stopped(f"no oracle knows these classes: the best, {best.candidate.name}, is {best}; {people}")
    return best


def _choose_generator(
    candidates: Sequence[Candidate],
    setup: SetUp,
    oracle: Trial,
    images: Tensor,
    truth: Tensor,
    clean: float,
    done: Checked,
    tell: Tell,
) -> tuple[Candidate, Any]:
    """The first generator whose plain reconstructions model and oracle still recognise."""
    columns = torch.tensor(setup.columns, device=images.device)
    for candidate in candidates:
        try:
            made = to_device(registry.create("generator", candidate.name, candidate.options), setup.spec.device)
            some = slice(0, None, max(1, len(images) // 32))
            few, labels_of = images[some], truth[some]
            side = getattr(made, "size", None)
            if side and side != few.shape[-1]:
                few = torch.nn.functional.interpolate(few, size=(side, side), mode="bilinear", antialias=True)
            with torch.no_grad():
                state = made.start(few.clone(), labels_of, torch.zeros(len(few), dtype=torch.int64, device=few.device))
                again = made.render(state).clamp(0, 1)
            hits = (ask_in_batches(lambda rows: setup.model.logits(rows), again).argmax(1) == columns[labels_of]).float().mean()
            accepted = (verdicts(oracle.oracle, again, labels_of, len(setup.dataset.classes)) == 1).float().mean()
        except CounterfoilError as problem:
            tell(f"note       generator {candidate.name} is not used: {problem}")
            continue
        told = f"on {len(few)} reconstructions the model is right on {float(hits):.0%}, the oracle accepts {float(accepted):.0%}"
        told = f"{candidate.about}; {told}" if candidate.about else told
        if float(hits) < KEEPS * clean or float(accepted) < KEEPS:
            tell(f"note       generator {candidate.name} is not used: {told}")
            continue
        _note(done, tell, "generator", candidate.name, told)
        return candidate, made
    raise Stopped("no generator reproduces these photos well enough; name one in a preset (--preset FILE)")
