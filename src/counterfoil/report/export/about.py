"""What a set says of itself: name, licence, where it came from, and how it was made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from counterfoil.metrics.imagenet_d_columns import surrogates_of
from counterfoil.metrics.outcomes import part_name
from counterfoil.report.export.pictures import Picture, folders_of
from counterfoil.report.export.reading import FORMAT, VERSION
from counterfoil.store import Run
from counterfoil.store.reviewed import review_of

UNSTATED = "not stated"
ROLES = ("painter", "generator", "editor", "captioner", "rewriter", "model", "data", "oracle")


@dataclass(frozen=True)
class About:
    """Everything the files of a set say beside its pictures."""

    name: str
    licence: str
    description: str
    protocol: str
    classes: Sequence[Mapping[str, Any]]  # name, folder and ids of those that have pictures
    labels: Sequence[str]  # what the numbers of labels mean
    surrogates: tuple[str, ...]
    parts: Mapping[str, str]  # by role
    seed: int
    program: str
    code: str  # hash of the program
    counts: Mapping[str, int]  # pictures by kind
    size: int
    note: str = ""
    review: Mapping[str, Any] | None = None  # the account of the review by people, if there was one

    def set_file(self) -> dict[str, Any]:
        """The content of `set.json`."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "name": self.name,
            "licence": self.licence,
            "description": self.description,
            "pictures": self.size,
            "classes": list(self.classes),
            "surrogates": list(self.surrogates),
            "provenance": {
                "protocol": self.protocol, "parts": dict(self.parts), "seed": self.seed,
                "program": self.program, "code": self.code,
            },
            **({"review": dict(self.review)} if self.review else {}),
            **({"note": self.note} if self.note else {}),
        }  # fmt: skip


def about(run: Run, pictures: Sequence[Picture], *, name: str | None, licence: str | None, note: str = "") -> About:
    """Gathered from a run."""
    ids: Mapping[str, Sequence[str]] = run.provenance.get("class_ids") or {}
    used = {picture.trial.label for picture in pictures}
    folders = folders_of(run.classes)
    classes = [
        {"name": known, "folder": folders[at], "ids": list(ids.get(known) or [known])}
        for at, known in enumerate(run.classes)
        if at in used
    ]
    protocol = str(run.spec.get("protocol", "fmr"))
    parts = {role: part_name(run.spec.get(role)) for role in ROLES if run.spec.get(role)}
    kinds = Counter(picture.trial.factor or picture.trial.arm for picture in pictures)
    return About(
        name=name or run.path.resolve().name,
        licence=licence or UNSTATED,
        description=f"{len(pictures)} pictures of {len(classes)} classes, made by the {protocol} protocol to test classifiers",
        protocol=protocol,
        classes=classes,
        labels=list(run.classes),
        surrogates=tuple(surrogates_of(run)),
        parts=parts,
        seed=int(run.spec.get("seed", 0)),
        program=f"counterfoil {_version()}",
        code=str(run.provenance.get("code", "")),
        counts=dict(sorted(kinds.items())),
        size=len(pictures),
        note=note,
        review=review_of(run.path),
    )


def _version() -> str:
    try:
        return version("counterfoil")
    except PackageNotFoundError:
        return "unknown"
