"""The texts of compare, gate and board, word for word; `python -m tests.report.test_golden` writes them again."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import pytest

from counterfoil import protocols, store
from counterfoil.core.records import Prediction, Trial
from counterfoil.protocols.reading import write_board
from tests.cli.stored import call, store_run
from tests.metrics.climbed import CLASSES

from .pages import read

GOLDEN = Path(__file__).parent / "golden"
COMMANDS = {
    "compare": ("compare", "good", "fair", "poor"),
    "compare_slices": ("compare", "good", "poor", "--by", "class", "--metric", "PA"),
    "compare_markdown": ("compare", "good", "poor", "--metric", "FMR", "--format", "md"),
    "compare_latex": ("compare", "good", "poor", "--metric", "FMR", "--format", "tex"),
    "compare_tests": ("compare", "good", "fair", "static"),
    "compare_predictions": ("compare", "good.csv", "poor.csv"),
    "gate_pass": ("gate", "good", "--min", "FMR=50", "--max", "drop=60", "--against", "fair"),
    "gate_fail": ("gate", "poor", "--min", "PA.ant=40", "--against", "good", "--margin", "2"),
    "gate_unproven": ("gate", "fair", "--against", "fair", "--allow-unproven"),
}


def world(folder: Path) -> Path:
    """Three runs of unlike models, and predictions of two."""
    for name, kept in (("good", 0.9), ("fair", 0.5), ("poor", 0.1)):
        store_run(folder / name, f"python:{name}", kept=kept)
    static(folder / "static")
    for name, every in (("good", 9), ("poor", 2)):
        rows = (f"i{at},{'cat' if at % 3 else 'dog'},{'cat' if at % 3 and at % every else 'dog'}\n" for at in range(90))
        (folder / f"{name}.csv").write_text("image_id,label,prediction\n" + "".join(rows))
    return folder


def static(path: Path) -> None:
    """A run of the protocol static in which the model of the run `good` is right on four of five images."""
    model = "python:good"
    spec = {"protocol": "static", "model": {"name": model}, "data": {"name": "lab:wardrobe"}, "seed": 0}
    with store.write(path, spec, CLASSES, {"size": 64}) as writer:
        for at in range(40):
            image = store.image_name(png := b"\x89PNG" + bytes([at]))
            trial = Trial(f"i{at}", "painted", at % 3, 0, "made", 0, 0, image=image, image_sha256=f"{at:064x}")
            right = bool(at % 5)
            said = Prediction(trial.trial_id, "made", model, at % 3 if right else (at + 1) % 3, right, 0.9, 0.9)
            writer.add([trial], [said], [], [png])
        writer.flush()
        run = store.open_run(path)
        writer.finish(protocols.of(run).results(run))


def run_command(folder: Path, name: str) -> str:
    """Text and exit code of a command, without the folder's name; of the board, the text of the page."""
    if name == "board":
        page = read(write_board([folder / each for each in ("good", "fair", "poor")], folder / "site", images=0))
        lines = [element.text for element in page.elements if element.name in ("h1", "h2", "h3", "p", "tr", "summary")]
        texts = (" ".join(line.split()) for line in lines)
        return "\n".join(text for text in texts if text and not text.startswith("Written by Counterfoil")) + "\n"
    known = {each.name for each in folder.iterdir()}
    code, output = call(*(folder / word if word in known else word for word in COMMANDS[name]))
    return f"{output.replace(f'{folder}/', '')}exit {code}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return world(tmp_path_factory.mktemp("golden"))


@pytest.mark.parametrize("name", [*COMMANDS, "board"])
def test_it_says_the_same_words(folder: Path, name: str) -> None:
    assert run_command(folder, name) == (GOLDEN / f"{name}.txt").read_text(encoding="utf-8")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        place = world(Path(temporary))
        for each in sys.argv[1:] or [*COMMANDS, "board"]:
            (GOLDEN / f"{each}.txt").write_text(run_command(place, each), encoding="utf-8")
