from __future__ import annotations

from pathlib import Path

import torch

from counterfoil import protocols
from counterfoil.parts import images
from counterfoil.parts.oracles.ensemble import EnsembleOracle
from counterfoil.parts.oracles.human import human_oracle
from counterfoil.protocols.workspace import Given
from counterfoil.testing import check_oracle, pictures
from tests.parts.oracles.conftest import Saying
from tests.worlds import arrays, spec

CLASSES = ["Red Boot", "bag"]
LABELS = torch.tensor([0, 1, 0, 1])


def answers(path: Path, *rows: tuple[int, str, str]) -> Path:
    """A file of answers about the test images, by their number."""
    lines = [f"{images.digest(pictures()[number])},{label},{answer}" for number, label, answer in rows]
    path.write_text("picture,label,answer\n" + "\n".join(lines) + "\n")
    return path


def test_nobody_has_answered_yet() -> None:
    verdicts = human_oracle().bind(CLASSES).judge(pictures(), LABELS)
    assert verdicts.keeps_label.tolist() == [-1] * 4
    assert verdicts.predicted.tolist() == [-1] * 4
    check_oracle(human_oracle(), CLASSES)


def test_answers_are_given_once_they_are_there(tmp_path: Path) -> None:
    file = answers(tmp_path / "a.csv", (0, "red boot", "yes"), (1, "bag", "no"), (2, "bag", "yes"))
    oracle = human_oracle(str(file))
    verdicts = oracle.bind(CLASSES).judge(pictures(), LABELS)
    assert verdicts.keeps_label.tolist() == [1, 0, -1, -1]  # the third was asked about another class
    assert verdicts.scores.tolist() == [1, 0, 0, 0]
    assert verdicts.predicted.tolist() == [0, -1, -1, -1]
    assert len(oracle.provenance()["answers"]) == 64
    check_oracle(oracle, CLASSES)


def test_most_people_decide_and_a_tie_stays_open(tmp_path: Path) -> None:
    votes = [(0, "red_boot", "yes"), (0, "red boot", "no"), (0, "Red Boot", "1"), (1, "bag", "yes"), (1, "bag", "no")]
    verdicts = human_oracle(str(answers(tmp_path / "a.csv", *votes))).bind(CLASSES).judge(pictures(), LABELS)
    assert verdicts.keeps_label.tolist() == [1, -1, -1, -1]


def test_a_row_without_an_answer_is_a_question_still_open(tmp_path: Path) -> None:
    file = answers(tmp_path / "a.csv", (0, "red boot", "yes"), (1, "bag", " "), (2, "bag", ""))
    assert human_oracle(str(file)).bind(CLASSES).judge(pictures(), LABELS).keeps_label.tolist() == [1, -1, -1, -1]


def test_people_beside_an_oracle_that_answers_now() -> None:
    now = Saying([1, 0, 1, 0], [0.9, 0.1, 0.8, 0.2], [0, 0, 0, 0])
    both = EnsembleOracle([now, human_oracle()]).bind(CLASSES)
    assert both.judge(pictures(), LABELS).keeps_label.tolist() == [1, 0, 1, 0]


def test_a_run_with_people_alone_leaves_everything_open(tmp_path: Path) -> None:
    data = f"tensors:{arrays(tmp_path / 'data.npz', 8)}"
    run = protocols.run(spec(data, oracle="human:"), tmp_path / "run", given=Given({"oracle": human_oracle()}))
    assert {verdict.keeps_label for verdict in run.verdicts()} == {None}
    assert all(trial.image for trial in run.trials)
