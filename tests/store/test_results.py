"""A run's results: the same bytes for the same numbers, gone when the run is resumed, and readable without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from counterfoil import store

from .made import CLASSES, PROVENANCE, SPEC, fill, write


def test_results_are_canonical_and_do_not_outlive_what_they_speak_of(tmp_path: Path) -> None:
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE) as writer:
        fill(writer, range(3))
        writer.finish({"b": 1 / 3, "a": {"value": None, "note": "é", "n": 3}, "c": -0.0})
    text = (tmp_path / "results.json").read_text(encoding="utf-8")
    assert text == '{\n  "a": {\n    "n": 3,\n    "note": "é",\n    "value": null\n  },\n  "b": 0.333333,\n  "c": 0.0\n}\n'
    assert store.open_run(tmp_path).results == json.loads(text)
    write(tmp_path, range(3))
    assert store.open_run(tmp_path).results is not None  # nothing was added
    write(tmp_path, range(4))
    assert store.open_run(tmp_path).results is None


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), {1, 2}])
def test_results_that_json_cannot_hold_are_refused(tmp_path: Path, value: object) -> None:
    with store.write(tmp_path, SPEC, CLASSES, PROVENANCE) as writer:
        fill(writer, range(1))
        with pytest.raises(ValueError, match=r"PA\.value"):
            writer.finish({"PA": {"value": value}})
    assert store.open_run(tmp_path).results is None


def test_results_can_be_read_without_torch() -> None:
    code = "import sys, counterfoil.store, counterfoil.metrics; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
