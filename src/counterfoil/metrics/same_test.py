"""Compare the tests of runs: which settings, data and parts differ between them."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from counterfoil.core.errors import UsageError
from counterfoil.core.spec import FREE, by_dotted_name
from counterfoil.store import Run

_FREE = ("model", "models", "others", "chats", "limit", "realism", *FREE)
"""Keys that may differ: the model, how many images (only those in common are compared), and what changes no number."""

_SHAPING = ("generator", "oracle", "captioner", "rewriter", "editor", "encoder", "painter")
"""The parts that decide which images there are and which of them count. Surrogates do too, by their own names."""

SHOWN = 40  # characters of a value


def differences(runs: Sequence[Run]) -> list[str]:
    """Settings that differ between runs other than the model, as `search.step (0.01 / 0.1)`; empty for the same test.

    The same ids and labels are the same data, wherever they lie; `check_sources` looks at the pixels.
    """
    hashes = {run.provenance.get("data") for run in runs}
    moved = {"data.name"} if len(hashes) == 1 and None not in hashes else set()
    return _unlike([{key: value for key, value in test_settings(run).items() if key not in moved} for run in runs])


def differences_in_data(runs: Sequence[Run]) -> list[str]:
    """Differences in which images there are; they matter to numbers that are not taken over those in common."""
    return _unlike([{"limit": run.spec.get("limit"), "data hash": run.provenance.get("data")} for run in runs])


def _unlike(every: Sequence[Mapping[str, Any]]) -> list[str]:
    found = []
    for key in dict.fromkeys(key for values in every for key in values):
        values = list(dict.fromkeys(_text(each.get(key)) for each in every))
        if len(values) > 1:
            found.append(f"{key} ({' / '.join(_shorten(values))})")
    return found


def check_sources(runs: Sequence[Run]) -> str:
    """Nothing if the runs saw the same source images; else how many differ. UsageError if the ids mean other images."""
    other, known = _other_sources(runs)
    sizes = {run.provenance.get("size") for run in runs}
    if known and other == known and len(sizes) == 1:
        paths = ", ".join(str(run.path) for run in runs)
        raise UsageError(f"{paths}: the same image ids stand for other images; compare runs over the same data")
    return _in_words(other, known)


def differences_in_sources(runs: Sequence[Run]) -> list[str]:
    """Count the source images of equal ids whose pixels differ."""
    return [text] if (text := _in_words(*_other_sources(runs))) else []


def _in_words(other: int, known: int) -> str:
    return f"pixels of {other} of {known} source images" if other else ""


def _other_sources(runs: Sequence[Run]) -> tuple[int, int]:
    """Of how many ids that all runs have the images differ, and of how many that is known."""
    hashes = [_source_hashes(run) for run in runs]
    known = [image_id for image_id in hashes[0] if all(image_id in each for each in hashes)]
    return sum(len({each[image_id] for each in hashes}) > 1 for image_id in known), len(known)


def test_settings(run: Run) -> dict[str, Any]:
    """Everything that makes it the test it is, by dotted key."""
    spec = {
        key: value
        for key, value in by_dotted_name(run.spec)
        if not any(key == each or key.startswith(f"{each}.") for each in _FREE)
    }
    return {**spec, **_hashes(run), "picture size": run.provenance.get("size"), "classes": list(run.classes)}


def test_identity(run: Run) -> str:
    """The same for runs that put models to the same test; which models those are, and which images, is no part of it."""
    told = {key: value for key, value in test_settings(run).items() if value is not None}
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:12]


def _hashes(run: Run) -> dict[str, str]:
    """Every hash that the parts which shape the test give of themselves: of weights, word lists, captions, answers."""
    parts = run.provenance.get("parts", {})
    surrogates = [part["name"] for part in run.spec.get("surrogates") or ()]
    named = {**{role: role for role in _SHAPING}, **{f"surrogate {name}": name for name in surrogates}}
    told = ((f"{role} {key}", value) for role, name in named.items() for key, value in parts.get(name, {}).items())
    return {key: value for key, value in told if isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value)}


def _source_hashes(run: Run) -> dict[str, str]:
    """The hash of each source image by its id; what was painted has none, what was read from a set has."""
    found = {}
    for batch in run.table("trials", columns=["image_id", "arm", "source", "source_sha256", "image_sha256"]):
        for image_id, arm, source, digest, own in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            if arm == "painted" and source:
                digest = own
            if arm in ("guided", "source", "painted") and digest:
                found[image_id] = digest
    return found


def _text(value: Any) -> str:
    return "none" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _shorten(texts: Sequence[str]) -> list[str]:
    """Long ones from where they begin to differ on."""
    if max(map(len, texts)) <= SHOWN:
        return list(texts)
    same = itertools.takewhile(lambda letters: len(set(letters)) == 1, zip(*texts, strict=False))
    start = max(0, sum(1 for _ in same) - SHOWN // 2)
    return [f"{'…' if start else ''}{text[start : start + SHOWN]}{'…' if len(text) > start + SHOWN else ''}" for text in texts]
