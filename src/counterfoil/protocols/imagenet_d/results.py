"""ImageNet-D's numbers: accuracy before and after mining, by kind of nuisance, and what two-choice answers come to.

`painted` are the images that show their object, `mined` those of them that were kept and, once people have looked, that
they accept. The headline is the mean accuracy, on both, of the tested models that took no part in the choice; its interval
is about other images, not about other models.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from counterfoil.core.errors import BadRun, UsageError
from counterfoil.core.naming import part_name
from counterfoil.core.records import LEVEL, Estimate
from counterfoil.core.spec import MiningSpec
from counterfoil.metrics.estimate import (
    RESAMPLES,
    Difference,
    Resamples,
    Share,
    Statistic,
    estimate,
    estimate_one,
    holm,
    sign_flip,
    stored_p,
)
from counterfoil.metrics.observations import (
    OPEN,
    YES,
    Codes,
    Measure,
    Observations,
    Undecided,
    class_column,
    class_names,
    read_all,
    surrogates_of,
)
from counterfoil.store import Run
from counterfoil.store.files import key_of
from counterfoil.store.later import by_people
from counterfoil.store.stages import StageTable

Flags = NDArray[np.bool_]

BIAS = (
    "Selection bias: the set was chosen by the surrogates' mistakes, so their accuracy on it says how it was made, not how good "
    "they are. Judge a surrogate by leave-one-out, and the set by models that took no part."
)
"""Stands under every table that shows a surrogate."""

FIXED_MODELS = "The mean is over these models alone: its interval is about other images, not about other models."

PAINTED = Share("painted_right", "painted", "no painted image that shows its object and that the model was asked about")
MINED = Share("mined_right", "mined", "no image of the set that the model was asked about")
DROP = Difference(PAINTED, MINED)

MEASURES: Mapping[str, Measure] = {
    "accuracy": Measure("accuracy", MINED, "accuracy on the set"),
    "accuracy_painted": Measure("accuracy_painted", PAINTED, "accuracy on what was painted, before anything was chosen"),
    "drop": Measure("drop", DROP, "accuracy_painted less accuracy", higher_is_better=False),
}
"""For one model. A set that was made before has the first alone."""

CONFUSIONS = 20  # pairs listed
ELSE = "(another class)"
_ONLY_KEPT = Estimate(None, None, None, 0, "asked about the images that were kept, and no others")
_TWO = Estimate(None, None, None, 0, "asked to choose between two names")
_NONE_READ = "no answer in that order could be read"
_FIRST, _SECOND = Share("first_right", "first", _NONE_READ), Share("second_right", "second", _NONE_READ)
_ORDER: dict[str, Statistic] = {
    "truth_first": _FIRST,
    "truth_second": _SECOND,
    "consistent": Share("same", "both", "every question was asked in one order only"),
    "bias": Difference(_FIRST, _SECOND),
}


@dataclass(frozen=True)
class ModelAnswers:
    """One model's answers about every usable image."""

    known: Flags  # whether it answered at all
    right: Flags
    predicted: NDArray[np.int64]  # in the run's classes; -1 for any other
    confidence: NDArray[np.float64]
    truth: NDArray[np.float64]
    rank: NDArray[np.int64]  # 0 where it was not noted
    named: NDArray[np.object_]  # the class it named, whether of the set or not; "" where that is not known


@dataclass(frozen=True)
class PaintedSet:
    """The usable images of a run, in the order they were made."""

    classes: tuple[str, ...]
    ids: tuple[str, ...]
    label: NDArray[np.int64]
    kind: NDArray[np.object_]
    nuisance: NDArray[np.object_]
    kept: Flags  # by mining; all of them where nothing was mined
    sees: Codes  # whether the oracle sees the object
    people: Codes  # whether people accept it
    hashes: tuple[int | None, ...]
    models: Mapping[str, ModelAnswers]
    turned_away: Mapping[str, int]  # why images are not kept, and how many
    skipped: Mapping[str, int]  # why images cannot be used, and how many
    object_check: bool = True  # whether the oracle's answer about the object counts

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def base(self) -> Flags:
        """The painted images that show their object, according to the oracle or for want of one."""
        flags: Flags = ((self.sees != 0) | (not self.object_check)) & (self.people != 0)
        return flags

    @property
    def final(self) -> Flags:
        """The images that were kept and, once people have looked at any of them, those they accept."""
        flags: Flags = self.kept & (self.people == YES if (self.people >= 0).any() else True)
        return flags

    @property
    def clusters(self) -> NDArray[np.int64]:
        """Images of one object and nuisance share a number: they are no more independent than their prompt.

        Those without a nuisance come from no such prompt, and each stands for itself.
        """
        about = zip(self.label, self.kind, self.nuisance, self.ids, strict=True)
        prompts = [f"{label}\0{kind}\0{word}" if word else f"\0{image_id}" for label, kind, word, image_id in about]
        numbers: NDArray[np.int64] = np.unique(prompts, return_inverse=True)[1].astype(np.int64)
        return numbers

    @property
    def class_names(self) -> NDArray[np.object_]:
        """The name of each image's class; two classes of one name are told apart by their number."""
        return _distinct(self.classes)[self.label]


def chats_of(run: Run) -> list[str]:
    """Name the vision-language models that a run asks, which choose between two names where others choose among all."""
    return [part_name(part) for part in run.spec.get("chats") or ()]


def tested_models(run: Run) -> list[str]:
    """Name the models that a run tests: classifiers that took no part in choosing its set, and vision-language models."""
    surrogates = surrogates_of(run)
    named = [*(part_name(part) for part in run.spec.get("models") or ()), *chats_of(run)]
    return [name for name in named if name not in surrogates]


def mining_of(run: Run) -> MiningSpec:
    """The rules by which the set was mined."""
    return MiningSpec(**(run.spec.get("mining") or {}))


def read_paintings(run: Run, *, oracle: str | None = None) -> PaintedSet:
    """Read a run; `oracle` decides whether the object is there, by default the run's own.

    People are asked about what was kept alone: on the others the run's own oracle decides.
    """
    own = part_name(run.spec.get("oracle"))
    asked = oracle or own
    rows, skipped, turned = [], Counter[str](), Counter[str]()
    for trial in run.trials:
        if not trial.image:
            skipped[trial.reason or trial.ending] += 1
            continue
        rows.append(trial)
        if trial.ending == "rejected":
            turned[trial.reason.partition(":")[0]] += 1
    trials = [trial.trial_id for trial in rows]
    verdicts = {name: np.maximum(each.codes(trials, "made"), OPEN) for name, each in read_all(run, "verdicts").items()}
    if asked not in {own, *verdicts}:
        known = ", ".join(sorted(verdicts)) or "nobody"
        raise BadRun(f"{run.path}: no verdicts by oracle {asked!r}; there are some by {known}")
    nothing = np.full(len(rows), OPEN, dtype=np.int8)
    sees, people = verdicts.get(asked, nothing), nothing
    for name, word in verdicts.items():
        if by_people(name):
            people = np.where(word == OPEN, people, word)
    if by_people(asked):
        sees = np.where(sees == OPEN, verdicts.get(own, nothing), sees)
    table = StageTable(run.path / "stages", "embeddings" if run.spec.get("encoder") else "paintings")
    codes = {row.id: row.values.get("hash") for row in table}
    return PaintedSet(
        classes=tuple(run.classes),
        ids=tuple(trial.image_id for trial in rows),
        label=np.array([trial.label for trial in rows], dtype=np.int64),
        kind=np.array([trial.factor for trial in rows], dtype=object),
        nuisance=np.array([trial.value for trial in rows], dtype=object),
        kept=np.array([trial.ending == "made" for trial in rows], dtype=bool),
        sees=sees.astype(np.int8),
        people=people.astype(np.int8),
        hashes=tuple(int(code, 16) if (code := codes.get(trial.image_id)) else None for trial in rows),
        models=_models(run, trials),
        turned_away=dict(sorted(turned.items())),
        skipped=dict(sorted(skipped.items())),
        object_check=mining_of(run).object_check,
    )


def observe(run: Run, *, model: str | None = None, oracle: str | None = None) -> Observations:
    """Read a run as one row per painted image that shows its object, for the named model or the only one it tests."""
    names = tested_models(run)
    if model is None and len(names) != 1:
        known = ", ".join(names) or "none that took no part in choosing the set"
        raise UsageError(f"{run.path}: tests several models or none; name one with --model: {known}")
    asked = model or names[0]
    paintings = read_paintings(run, oracle=oracle)
    if asked not in paintings.models:
        known = ", ".join(sorted(paintings.models)) or "nobody"
        raise BadRun(f"{run.path}: no predictions by model {asked!r}; there are some by {known}")
    columns = {name: column.astype(bool) for name, column in columns_of(paintings, [asked], paintings.final).items()}
    before = {"painted", "painted_right"}
    if not run.spec.get("painter"):  # a set that was made before
        columns = {name: column for name, column in columns.items() if name not in before}
    elif asked in chats_of(run):  # it was not asked about what mining rejected
        columns |= dict.fromkeys(before, np.zeros(len(paintings), dtype=bool))
    keys = np.array([key_of(name) for name in paintings.ids], dtype=np.uint64)
    every = Observations(
        model=asked,
        oracle=oracle or part_name(run.spec.get("oracle")),
        row="image",
        keys=keys,
        columns=columns,
        groups={
            "kind": paintings.kind,
            "class": class_column(paintings.classes, paintings.label),
            "nuisance": paintings.nuisance,
        },
        cluster=paintings.clusters,
        cluster_of="prompt",
        undecided=_count_undecided(paintings, oracle or part_name(run.spec.get("oracle"))),
        seed=int(run.spec.get("seed", 0)),
    )
    order = np.argsort(keys)
    found = every.take(order[paintings.base[order]])
    entry = ((run.results or {}).get("models") or {}).get(asked) if oracle is None else None
    stored = {"accuracy": "mined", "accuracy_painted": "painted", "drop": "drop"}
    kept = {name: Estimate.from_dict(entry[key]) for name, key in stored.items() if key in entry} if entry else {}
    return replace(found, estimates=kept)


def results(run: Run, seed: int = 0, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
    """Compute the content of `results.json`. With `model` only that one counts as having taken no part."""
    from counterfoil.protocols.imagenet_d.analyses import by_number, failure_modes, leave_one_out

    paintings = read_paintings(run, oracle=oracle)
    chats = chats_of(run)
    surrogates = [name for name in surrogates_of(run) if name in paintings.models]
    unseen = [name for name in paintings.models if name not in surrogates and name not in chats and model in (None, name)]
    # One that was asked about some images alone, as when asking was interrupted, has its own row and no part in the mean.
    pooling = [name for name in unseen if (paintings.models[name].known | ~paintings.base).all()] or unseen
    mining, final = mining_of(run), paintings.final
    mined_set = bool(surrogates) and bool(run.spec.get("painter"))
    found: dict[str, Any] = {"protocol": "imagenet-d", "counts": counts(paintings)}
    if unseen:
        pool = compare_means(paintings, pooling, final, seed=(seed, 1))
        found["accuracy"] = pool["mined"]
        if mined_set:
            found |= {"accuracy_painted": pool["painted"], "drop": pool["drop"], "drop_p": pool["p"]}
    roles = [(name, role) for role, names in (("unseen", unseen), ("surrogate", surrogates), ("chat", chats)) for name in names]
    found["models"] = {}
    for at, (name, role) in enumerate(roles):
        if name in paintings.models:
            entry = _model(paintings, name, role, final, seed=(seed, 2, at), mined_set=mined_set)
            if role != "chat":
                entry["failure_modes"] = failure_modes(paintings, name, final, seed=(seed, 2, at))
                entry["confusions"] = _confusions(paintings, name, final)
            found["models"][name] = entry
    if mined_set:
        correct([entry for entry in found["models"].values() if entry["role"] == "unseen"])
        found["leave_one_out"] = leave_one_out(paintings, mining, surrogates, pooling, seed=seed)
        found["by_number"] = by_number(paintings, mining, surrogates, pooling, seed=seed)
    if surrogates:
        found["selection_bias"] = BIAS
    clusters = dict(zip(paintings.ids, paintings.clusters.tolist(), strict=True))
    for name in chats:
        if bias := order_bias(StageTable(run.path / "stages", answers_table(name)), clusters=clusters, seed=seed):
            found.setdefault("order_bias", {})[name] = bias
    found["model"] = {"name": ", ".join(pooling or chats or paintings.models) or "no model"}
    found["oracle"] = {"name": oracle or part_name(run.spec.get("oracle")) or "none"}
    found["interval"] = {"level": LEVEL, "resamples": RESAMPLES, "seed": seed}
    return found


def columns_of(paintings: PaintedSet, names: Sequence[str], chosen: Flags) -> dict[str, NDArray[Any]]:
    """One row per image: whether the models were asked about it, on what was painted and on what was chosen of it, and which
    share of them is right."""
    known = np.logical_and.reduce([paintings.models[name].known for name in names])
    right = np.mean([paintings.models[name].right for name in names], axis=0)
    painted = paintings.base & known
    mined = painted & chosen
    return {"painted": painted, "painted_right": painted * right, "mined": mined, "mined_right": mined * right}


def compare_means(paintings: PaintedSet, names: Sequence[str], chosen: Flags, *, seed: int | tuple[int, ...]) -> dict[str, Any]:
    """Mean accuracy of models on what was painted and on what was chosen of it, and whether it is lower there."""
    drawn = Resamples(columns_of(paintings, names, chosen), clusters=paintings.clusters, seed=seed)
    drop = estimate_one(drawn, DROP)
    return {
        "painted": estimate_one(drawn, PAINTED).to_dict(),
        "mined": estimate_one(drawn, MINED).to_dict(),
        "drop": drop.to_dict(),
        "p": stored_p(drawn.p_value(DROP)) if drop.value is not None else None,
    }


def correct(entries: Sequence[dict[str, Any]]) -> None:
    """Give every entry its p-value, corrected for the number of entries (Holm)."""
    known = [entry for entry in entries if entry["p"] is not None]
    for entry, adjusted in zip(known, holm([entry["p"] for entry in known]), strict=True):
        entry["p_adjusted"] = adjusted


def counts(paintings: PaintedSet) -> dict[str, Any]:
    """Count images by what became of them."""
    people = paintings.people[paintings.kept]
    return {
        "images": len(paintings) + sum(paintings.skipped.values()),
        "readable": len(paintings),
        "skipped": sum(paintings.skipped.values()),
        "validated": int(paintings.final.sum()),
        "skipped_for": dict(paintings.skipped),
        "object_seen": int((paintings.sees == 1).sum()),
        "object_open": int((paintings.sees < 0).sum()),
        "kept": int(paintings.kept.sum()),
        "turned_away": dict(paintings.turned_away),
        "people_accept": int((people == 1).sum()),
        "people_reject": int((people == 0).sum()),
        "people_pending": int((people < 0).sum()),
    }


def order_bias(table: StageTable, *, clusters: Mapping[str, int], seed: int = 0) -> dict[str, Any] | None:
    """Accuracy of two-choice answers with the truth named first and second, their difference, and unread answers.

    `clusters` says by id which images go together. Without the same questions in the other order, the two accuracies are of
    different images; the order was random, so they can be compared all the same. None where nothing was asked.
    """
    rows = [row for row in table.passing() if row.id in clusters]
    if not rows:
        return None
    # `right` belongs to the order that was asked first, which may be either.
    answers = [{bool(row["truth_first"]): row["right"]} for row in rows]
    for row, answer in zip(rows, answers, strict=True):
        if "right_turned" in row.values:
            answer[not row["truth_first"]] = row["right_turned"]
    both = np.array([len(answer) == 2 for answer in answers])
    columns = {
        "first": np.array([answer.get(True) is not None for answer in answers]),
        "first_right": np.array([answer.get(True) is True for answer in answers]),
        "second": np.array([answer.get(False) is not None for answer in answers]),
        "second_right": np.array([answer.get(False) is True for answer in answers]),
        "both": both,
        "same": both & np.array([answer.get(True) is not None and answer.get(True) == answer.get(False) for answer in answers]),
    }
    groups = np.unique([clusters[row.id] for row in rows], return_inverse=True)[1]
    drawn = Resamples(columns, clusters=groups, seed=seed)
    found = {name: estimate_one(drawn, each) for name, each in _ORDER.items()}
    # Exact that the order decides nothing: both orders of a question exchanged, a cluster at a time.
    turns = (both & columns["first"] & columns["second"]) * (columns["first_right"].astype(int) - columns["second_right"])
    p = sign_flip(np.bincount(groups, turns).astype(int)) if both.any() else drawn.p_value(_ORDER["bias"])
    return {
        **{name: each.to_dict() for name, each in found.items()},
        "p": None if found["bias"].value is None else stored_p(p),
        "unread": sum(right is None for answer in answers for right in answer.values()),
        "asked": sum(map(len, answers)),
    }


def looks_table(model: str) -> str:
    """The stage table that holds what a classifier answered about every image."""
    return f"looks-{_short(model)}"


def answers_table(chat: str) -> str:
    """The stage table that holds what a vision-language model answered."""
    return f"answers-{_short(chat)}"


def _short(name: str) -> str:
    """A name that any file system takes and that tells two parts apart."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")[-40:]
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"


def in_order(models: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Models by the part they took: those under test first, surrogates last."""
    return sorted(models.items(), key=lambda pair: (("unseen", "chat", "surrogate").index(pair[1]["role"]), pair[0]))


def _distinct(classes: Sequence[str]) -> NDArray[np.object_]:
    """The names of all classes, by number."""
    return np.array(list(class_names(classes, np.arange(len(classes))).values()), dtype=object)


def _count_undecided(paintings: PaintedSet, oracle: str) -> Undecided:
    """Of the kept images: once people have looked at any, what they have not come to; else what the oracle leaves open."""
    people, sees = paintings.people[paintings.kept], paintings.sees[paintings.kept]
    if (paintings.people >= 0).any():
        return Undecided(int((people < 0).sum()), "image", "people", "in accuracy_painted alone")
    return Undecided(int((sees < 0).sum()) if oracle else 0, "image", oracle, "as if they showed their object")


def _models(run: Run, trials: Sequence[str]) -> dict[str, ModelAnswers]:
    found = {}
    names = _distinct(run.classes)
    for model, answers in read_all(run, "predictions", ("predicted", "confidence", "truth", "rank", "said")).items():
        correct_codes = answers.codes(trials, "made")
        known = correct_codes >= 0
        if not known.any():
            continue
        predicted = np.nan_to_num(answers.numbers(trials, "made", "predicted"), nan=-1).astype(np.int64)
        beyond = [text or "" for text in answers.about(trials, "made", "said").to_pylist()]
        named = np.array(
            [names[at] if at >= 0 else text for at, text in zip(predicted.tolist(), beyond, strict=True)], dtype=object
        )
        numbers = {name: np.nan_to_num(answers.numbers(trials, "made", name)) for name in ("confidence", "truth", "rank")}
        found[model] = ModelAnswers(
            known=known,
            right=correct_codes == YES,
            predicted=predicted,
            confidence=numbers["confidence"],
            truth=numbers["truth"],
            rank=numbers["rank"].astype(np.int64),
            named=named,
        )
    return found


def _model(
    paintings: PaintedSet, name: str, role: str, final: Flags, *, seed: tuple[int, ...], mined_set: bool
) -> dict[str, Any]:
    answers = paintings.models[name]
    entry: dict[str, Any] = {"role": role, **compare_means(paintings, [name], final, seed=seed)}
    if not mined_set:
        entry = {"role": role, "mined": entry["mined"]}
    entry["top5"] = _top5(paintings, answers, final, seed)
    entry["by_nuisance"] = _by_kind(paintings, answers, final, seed)
    if role == "surrogate" and mined_set:  # its drop says how the set was made, and needs no test
        entry["p"] = None
    if role == "chat":
        entry["top5"] = _TWO.to_dict()
        if mined_set:
            unasked = _ONLY_KEPT.to_dict()
            kinds = {kind: {**found, "painted": unasked} for kind, found in entry["by_nuisance"].items()}
            entry |= {"painted": unasked, "drop": unasked, "p": None, "by_nuisance": kinds}
    return entry


def _by_kind(paintings: PaintedSet, answers: ModelAnswers, final: Flags, seed: tuple[int, ...]) -> dict[str, Any]:
    entry = {}
    for place, kind in enumerate(sorted(set(paintings.kind) - {""})):
        found: dict[str, Estimate] = {}
        for where, inside in (("painted", paintings.base), ("mined", final & paintings.base)):
            asked = inside & answers.known & (paintings.kind == kind)
            columns = {"asked": asked, "right": asked & answers.right}
            share = {where: Share("right", "asked", "no image of that kind")}
            found |= estimate(columns, share, seed=(*seed, 4, place), clusters=paintings.clusters)
        entry[kind] = {where: each.to_dict() for where, each in found.items()}
    return entry


def _top5(paintings: PaintedSet, answers: ModelAnswers, final: Flags, seed: tuple[int, ...]) -> dict[str, Any]:
    asked = final & paintings.base & answers.known & (answers.rank > 0)
    columns = {"asked": asked, "right": asked & (answers.rank <= 5)}
    share = Share("right", "asked", "the places of the right answer were not noted")
    return estimate(columns, {"top5": share}, seed=(*seed, 5), clusters=paintings.clusters)["top5"].to_dict()


def _confusions(paintings: PaintedSet, name: str, final: Flags) -> list[dict[str, Any]]:
    answers, truth = paintings.models[name], paintings.class_names
    rows = np.flatnonzero(final & paintings.base & answers.known & ~answers.right)
    pairs = Counter((truth[at], str(answers.named[at]) or ELSE) for at in rows)
    return [{"truth": right, "answer": answer, "times": times} for (right, answer), times in pairs.most_common(CONFUSIONS)]
