"""Pairs made by a teacher: checked, resumed after a kill, described, and trained on by the same command."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from counterfoil.cli.app import app
from counterfoil.core.errors import BadData, BadSpec, RunFailed
from counterfoil.parts.contracts import Proposals, Rejection, RewriteRequest
from counterfoil.parts.language.edits import EditChecker
from counterfoil.parts.language.lexicon import english
from counterfoil.parts.language.lexicon_rewriter import LexiconRewriter
from counterfoil.parts.language.pairs import BATCH, make_pairs
from counterfoil.parts.language.training import read_pairs
from tests.parts.language.small_models import llama

COLOURS, PLACES = ("red", "blue", "green", "black", "white", "brown"), ("on a beach", "in a forest", "on a street")
CAPTIONS = [f"a photo of a {colour} dog {place}" for colour in COLOURS for place in PLACES]


class Teacher(LexiconRewriter):
    """Proposes what the word lists do, and one caption that is another one altogether."""

    def __init__(self, dies_after: int | None = None) -> None:
        super().__init__(english(), proposals=2)
        self.asked: list[RewriteRequest] = []
        self.dies_after = dies_after

    def rewrite(self, requests):
        if self.dies_after is not None and len(self.asked) >= self.dies_after:
            raise KeyboardInterrupt
        self.asked += requests
        return [Proposals((*each.captions, "two boats at sea under a bridge")) for each in super().rewrite(requests)]


@pytest.fixture
def captions(tmp_path: Path) -> Path:
    (tmp_path / "captions.txt").write_text("\n".join([*CAPTIONS, "", CAPTIONS[0]]) + "\n")
    return tmp_path / "captions.txt"


def test_pairs_are_the_proposals_that_pass_the_checks(tmp_path: Path, captions: Path) -> None:
    made = make_pairs(captions, Teacher(), tmp_path / "out", name="fake:", factors=("background", "adjective"))
    pairs, checker = read_pairs(made.file), EditChecker.build()
    assert len(pairs) == made.pairs and {pair.factor for pair in pairs} == {"background", "adjective"}
    assert {pair.caption for pair in pairs} == set(CAPTIONS)
    assert all(checker.check(pair.caption, pair.factor, [pair.edit]).edits for pair in pairs)


def test_the_card_says_what_they_were_made_from_and_how_many_passed(tmp_path: Path, captions: Path) -> None:
    made = make_pairs(captions, Teacher(), tmp_path / "out", name="fake:", factors=("background",), seed=3)
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    counted = card["by_factor"]["background"]
    assert card["teacher"] == {"name": "fake:", "words": "english"} and card["captions"]["count"] == len(CAPTIONS)
    assert (card["seed"], card["words"], card["pairs"]) == (3, "english", made.pairs)
    assert counted["passed"] == made.pairs and counted["proposals"] == counted["passed"] + sum(counted["rejected"].values())
    assert counted["rejected"]["too-different"] == len(CAPTIONS) and counted["share"] == round(made.pairs / made.proposals, 4)


def test_an_interrupted_making_resumes_to_the_same_pairs(tmp_path: Path, captions: Path) -> None:
    whole = make_pairs(captions, Teacher(), tmp_path / "whole", name="fake:").file.read_bytes()
    with pytest.raises(KeyboardInterrupt):
        make_pairs(captions, Teacher(dies_after=1), tmp_path / "out", name="fake:")
    again = Teacher()
    assert make_pairs(captions, again, tmp_path / "out", name="fake:").file.read_bytes() == whole
    assert len({request.caption for request in again.asked}) == len(CAPTIONS) - BATCH
    finished = Teacher()
    make_pairs(captions, finished, tmp_path / "out", name="fake:")
    assert finished.asked == [] and not (tmp_path / "out" / "batches").exists()


def test_pairs_of_something_else_are_not_mixed(tmp_path: Path, captions: Path) -> None:
    made = make_pairs(captions, Teacher(), tmp_path / "out", name="fake:")
    with pytest.raises(BadSpec, match="pairs with another seed"):
        make_pairs(captions, Teacher(), tmp_path / "out", name="fake:", seed=1)
    made.file.write_text(made.file.read_text() + "\n")
    with pytest.raises(BadData, match="was changed after it was made"):
        make_pairs(captions, Teacher(), tmp_path / "out", name="fake:")


def test_an_endpoint_that_does_not_answer_stops_it_and_nothing_is_kept_of_it(tmp_path: Path, captions: Path) -> None:
    class Silent(Teacher):
        def rewrite(self, requests):
            return [Proposals(rejections=(Rejection(each.factor, "", "endpoint", "http://x: no answer"),)) for each in requests]

    with pytest.raises(RunFailed, match="http://x: no answer; finished work is kept"):
        make_pairs(captions, Silent(), tmp_path / "out", name="fake:")
    assert make_pairs(captions, Teacher(), tmp_path / "out", name="fake:").pairs


def test_a_teacher_of_whom_nothing_passes_is_named_with_the_reasons(tmp_path: Path, captions: Path) -> None:
    class Mute(Teacher):
        def rewrite(self, requests):
            return [Proposals() for _ in requests]

    with pytest.raises(BadData, match="none of the teacher's proposals passed the checks"):
        make_pairs(captions, Mute(), tmp_path / "out", name="fake:")


def test_one_command_makes_pairs_and_trains_on_them(tmp_path: Path) -> None:
    (tmp_path / "captions.csv").write_text("image_id,caption\n" + "\n".join(f"{n},{text}" for n, text in enumerate(CAPTIONS)))
    base, out = llama(tmp_path / "base"), tmp_path / "out"
    teacher = ["--teacher", "lexicon:", "--set", "proposals=1", "--factor", "background", "--factor", "adjective"]
    training = ["--base", str(base), "--epochs", "0.2", "--style", "plain", "--out", str(out)]
    arguments = ["train-rewriter", str(tmp_path / "captions.csv"), *teacher, *training]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "proposals passed the checks" in done.output and "background" in done.output
    assert json.loads((out / "pairs" / "card.json").read_text())["teacher"]["name"] == "lexicon:"
    assert (out / "adapter_model.safetensors").is_file()
    assert "nothing to do" in CliRunner().invoke(app, arguments).output
