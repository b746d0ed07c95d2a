"""The numbers of the ImageNet-D protocol.

`painted` are the pictures that show their object, `mined` those of them that were kept and, once people have looked, that
they accept. The headline is the mean accuracy of models that took no part in the choice, on both.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from counterfoil.core.records import LEVEL, Estimate
from counterfoil.metrics.estimate import RESAMPLES, Share, estimate
from counterfoil.metrics.failure_modes import OTHER, sort_mistakes
from counterfoil.metrics.imagenet_d_columns import Flags, Paintings, Said, chats_of, mining_of, read_paintings, surrogates_of
from counterfoil.metrics.imagenet_d_text import table_text
from counterfoil.metrics.imagenet_d_transfer import BIAS, by_number, compared, correct, leave_one_out
from counterfoil.metrics.look_tables import answers_table
from counterfoil.metrics.outcomes import part_name
from counterfoil.metrics.two_choices import order_bias
from counterfoil.store import Run
from counterfoil.store.stages import open_table

__all__ = ["counts", "failure_modes", "results", "table_text"]

CONFUSIONS = 20  # pairs listed
_ONLY_KEPT = Estimate(None, None, None, 0, "asked about the pictures that were kept, and no others")
_TWO = Estimate(None, None, None, 0, "asked to choose between two names")


def results(run: Run, seed: int = 0, *, model: str | None = None, oracle: str | None = None) -> dict[str, Any]:
    """The content of `results.json`. With `model` only that one counts as having taken no part."""
    paintings = read_paintings(run, oracle=oracle)
    chats = chats_of(run)
    surrogates = [name for name in surrogates_of(run) if name in paintings.models]
    unseen = [name for name in paintings.models if name not in surrogates and name not in chats and model in (None, name)]
    # One that was asked about some pictures alone, as when asking was interrupted, has its own row and no part in the mean.
    pooling = [name for name in unseen if (paintings.models[name].known | ~paintings.base).all()] or unseen
    mining, final = mining_of(run), paintings.final
    mined_set = bool(surrogates) and bool(run.spec.get("painter"))
    found: dict[str, Any] = {"protocol": "imagenet-d", "counts": counts(paintings)}
    if unseen:
        pool = compared(paintings, pooling, final, seed=(seed, 1))
        found["accuracy"] = pool["mined"]
        if mined_set:
            found |= {"accuracy_painted": pool["painted"], "drop": pool["drop"], "drop_p": pool["p"]}
    found["models"] = {
        name: _model(paintings, name, role, final, seed=(seed, 2, at), mined_set=mined_set)
        for at, (name, role) in enumerate(
            [
                *((name, "unseen") for name in unseen),
                *((name, "surrogate") for name in surrogates),
                *((name, "chat") for name in chats),
            ]
        )
        if name in paintings.models
    }
    if mined_set:
        correct([entry for entry in found["models"].values() if entry["role"] == "unseen"])
        found["leave_one_out"] = leave_one_out(paintings, mining, surrogates, pooling, seed=seed)
        found["by_number"] = by_number(paintings, mining, surrogates, pooling, seed=seed)
    if surrogates:
        found["selection_bias"] = BIAS
    clusters = dict(zip(paintings.ids, paintings.clusters.tolist(), strict=True))
    for name in chats:
        if bias := order_bias(open_table(run.path / "stages", answers_table(name)), clusters=clusters, seed=seed):
            found.setdefault("order_bias", {})[name] = bias
    found["model"] = {"name": ", ".join(pooling or chats or paintings.models) or "no model"}
    found["oracle"] = {"name": oracle or part_name(run.spec.get("oracle")) or "none"}
    found["interval"] = {"level": LEVEL, "resamples": RESAMPLES, "seed": seed}
    return found


def counts(paintings: Paintings) -> dict[str, Any]:
    """How many pictures went which way."""
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


def _model(paintings: Paintings, name: str, role: str, final: Flags, *, seed: tuple[int, ...], mined_set: bool) -> dict[str, Any]:
    said = paintings.models[name]
    entry: dict[str, Any] = {"role": role, **compared(paintings, [name], final, seed=seed)}
    if not mined_set:
        entry = {"role": role, "mined": entry["mined"]}
    entry["top5"] = _top5(paintings, said, final, seed)
    entry["by_nuisance"] = _by_kind(paintings, said, final, seed)
    if role == "surrogate" and mined_set:  # its drop says how the set was made, and needs no test
        entry["p"] = None
    if role == "chat":
        entry["top5"] = _TWO.to_dict()
        if mined_set:
            unasked = _ONLY_KEPT.to_dict()
            kinds = {kind: {**found, "painted": unasked} for kind, found in entry["by_nuisance"].items()}
            entry |= {"painted": unasked, "drop": unasked, "p": None, "by_nuisance": kinds}
        return entry
    entry["failure_modes"] = failure_modes(paintings, said, final, seed=seed)
    entry["confusions"] = _confusions(paintings, said, final)
    return entry


def failure_modes(paintings: Paintings, said: Said, final: Flags, *, seed: tuple[int, ...] = (0,)) -> dict[str, Any]:
    """How many mistakes follow the nuisance, on what was painted and on what was kept, and the strongest pulls."""
    rows = np.flatnonzero(paintings.base & said.known)
    truth = [paintings.classes[label] for label in paintings.label[rows]]
    words = [word or "(another class)" for word in said.words[rows]]
    # An answer counts by class: another of the several names of the right class is no mistake.
    answers = [right if ok else word for right, word, ok in zip(truth, words, said.right[rows], strict=True)]
    modes, pulls = sort_mistakes(truth, answers, list(paintings.kind[rows]), list(paintings.nuisance[rows]))
    kinds = [*sorted(set(paintings.kind) - {""}), OTHER]
    entry: dict[str, Any] = {}
    for where, inside in (("painted", np.ones(len(rows), dtype=bool)), ("mined", final[rows])):
        wrong = inside & (modes != "")
        columns = {"wrong": wrong, **{kind: wrong & (modes == kind) for kind in kinds}}
        columns["driven"] = wrong & (modes != OTHER)
        shares = {kind: Share(kind, "wrong", "no mistakes") for kind in [*kinds, "driven"]}
        found = estimate(columns, shares, seed=(*seed, 3), clusters=paintings.clusters[rows])
        entry[where] = {
            "mistakes": int(wrong.sum()),
            "pictures": int(inside.sum()),
            **{kind: {"times": int(columns[kind].sum()), "share": found[kind].to_dict()} for kind in [*kinds, "driven"]},
        }
    entry["pulls"] = [
        {"kind": pull.kind, "nuisance": pull.nuisance, "answer": pull.answer, "times": pull.times, "among": pull.among,
         "elsewhere": pull.elsewhere, "p": pull.p}
        for pull in pulls[:CONFUSIONS]
    ]  # fmt: skip
    return entry


def _by_kind(paintings: Paintings, said: Said, final: Flags, seed: tuple[int, ...]) -> dict[str, Any]:
    entry = {}
    for place, kind in enumerate(sorted(set(paintings.kind) - {""})):
        found: dict[str, Estimate] = {}
        for where, inside in (("painted", paintings.base), ("mined", final & paintings.base)):
            asked = inside & said.known & (paintings.kind == kind)
            columns = {"asked": asked, "right": asked & said.right}
            share = {where: Share("right", "asked", "no picture of that kind")}
            found |= estimate(columns, share, seed=(*seed, 4, place), clusters=paintings.clusters)
        entry[kind] = {where: each.to_dict() for where, each in found.items()}
    return entry


def _top5(paintings: Paintings, said: Said, final: Flags, seed: tuple[int, ...]) -> dict[str, Any]:
    asked = final & paintings.base & said.known & (said.rank > 0)
    columns = {"asked": asked, "right": asked & (said.rank <= 5)}
    share = Share("right", "asked", "the places of the right answer were not noted")
    return estimate(columns, {"top5": share}, seed=(*seed, 5), clusters=paintings.clusters)["top5"].to_dict()


def _confusions(paintings: Paintings, said: Said, final: Flags) -> list[dict[str, Any]]:
    rows = np.flatnonzero(final & paintings.base & said.known & ~said.right)
    pairs = Counter((paintings.classes[paintings.label[at]], str(said.words[at]) or "(another class)") for at in rows)
    return [{"truth": truth, "answer": answer, "times": times} for (truth, answer), times in pairs.most_common(CONFUSIONS)]
