"""What a page over a staged run has to download: the specification, the numbers, and the tables that people read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from counterfoil.store import Run
from counterfoil.store.files import canonical, plain


def write_tables(
    run: Run, results: Mapping[str, Any] | None, out: Path, *, number: int, stages: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Put the files into the report; where each is, and what. `stages` are names of tables with what they hold."""
    folder = f"downloads/{number}"
    (out / folder).mkdir(parents=True, exist_ok=True)
    found = [(f"{folder}/spec.yaml", "the specification: counterfoil run spec.yaml makes it again")]
    text = yaml.safe_dump(plain(run.spec), sort_keys=False, allow_unicode=True)
    (out / found[0][0]).write_text(text, encoding="utf-8")
    if results is not None:
        found.append((f"{folder}/results.json", "the numbers of this page"))
        (out / found[-1][0]).write_bytes(canonical(results))
    for stage, what in stages:
        source = run.path / "stages" / f"{stage}.jsonl"
        if source.is_file():
            found.append((f"{folder}/{stage}.jsonl", what))
            (out / found[-1][0]).write_bytes(source.read_bytes())
    return found
