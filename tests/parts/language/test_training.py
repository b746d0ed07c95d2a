"""Pairs made by a teacher, and training an adapter on them: checked, resumed after a kill, and that it helps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from lab.training.wording import prompt_tokenizer
from safetensors.torch import load_file
from typer.testing import CliRunner

from counterfoil.cli.app import app
from counterfoil.core.errors import BadData, BadRun, BadSpec, BadWeights, CounterfoilError, RunFailed
from counterfoil.parts.contracts import Proposals, Rejection, RewriteRequest
from counterfoil.parts.language.edits import EditChecker
from counterfoil.parts.language.lexicon import english
from counterfoil.parts.language.lexicon_rewriter import LexiconRewriter
from counterfoil.parts.language.pairs import BATCH, make_pairs
from counterfoil.parts.language.prompted_rewriter import STYLES, LlmOptions, PromptedRewriter, llm_rewriter, style_of
from counterfoil.parts.language.training import (
    IGNORED,
    Pair,
    Recipe,
    make_examples,
    read_pairs,
    split_pairs,
    train,
    write_pairs,
)
from counterfoil.store.files import hold
from counterfoil_lab.language import rewriter
from counterfoil_lab.parts import WEIGHTS
from tests.parts.language.small_models import llama

pytestmark = pytest.mark.xdist_group("tuning")
PLACES = ("on a beach", "in a city", "in a desert", "on a road", "in a forest", "on water")
PAIRS = [
    Pair(f"a picture of a {thing} {place}", "background", f"a picture of a {thing} {other}")
    for thing in ("boot", "bag", "dress")
    for place in PLACES
    for other in PLACES
    if place != other
]
RECIPE = Recipe(style="plain", batch=16, epochs=2.0, learning_rate=1e-2, validation_share=0.2, dropout=0.1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_pairs(tmp_path / "pairs.jsonl", PAIRS)
    return tmp_path / "pairs.jsonl"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(llama(tmp_path_factory.mktemp("base")))


class Killed(Exception):
    """A stand-in for a kill."""


def killed_at(number: int) -> object:
    def watch(step: int, steps: int, loss: float) -> None:
        if step == number:
            raise Killed

    return watch


def test_pairs_go_through_a_file_unchanged(file: Path) -> None:
    assert read_pairs(file) == PAIRS


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 2: not JSON"),
        ("[]", "a JSON list"),
        ('{"caption": "a dog"}', "fields caption; a pair has the texts caption, factor, edit"),
        ('{"caption": "a dog", "factor": "mood", "edit": "a cat"}', "'mood' is none of"),
        ('{"caption": "a dog", "factor": "subject", "edit": "a  dog"}', "the edit is the caption"),
        ('{"caption": "", "factor": "subject", "edit": "a dog"}', "from 1 to"),
    ],
)
def test_a_line_that_is_no_pair_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "pairs.jsonl"
    file.write_text('{"caption": "a dog", "factor": "subject", "edit": "a cat"}\n' + line)
    with pytest.raises(BadData, match=complaint):
        read_pairs(file)


def test_files_without_pairs(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\x00")
    for name, complaint in (("empty.jsonl", "no pairs"), ("bytes.jsonl", "UTF-8"), ("none.jsonl", "cannot be read")):
        with pytest.raises(BadData, match=complaint):
            read_pairs(tmp_path / name)


def test_no_caption_is_both_trained_on_and_validated() -> None:
    learned, tried = split_pairs(PAIRS, 0.3)
    assert tried
    assert len(learned) + len(tried) == len(PAIRS)
    assert not {pair.caption for pair in learned} & {pair.caption for pair in tried}


def test_only_the_answer_is_learned() -> None:
    tokenizer = prompt_tokenizer()
    pair = Pair("a photo of a red silk bag on a road", "adjective", "a photo of a red wool bag on a road")
    style = style_of(WEIGHTS / "rewriter")
    assert style is not None
    example = make_examples([pair], style, tokenizer, 64)[0]
    assert tokenizer.decode(example["input_ids"][1:8]) == "material : a photo of a red"
    wanted = [token for token in example["labels"] if token != IGNORED]
    assert tokenizer.decode(wanted, skip_special_tokens=True) == pair.edit
    assert wanted[-1] == tokenizer.eos_token_id


def test_numbered_answers_hold_all_edits_of_a_caption() -> None:
    found = make_examples(PAIRS[:10], STYLES["instruct"], prompt_tokenizer(), 1000)
    assert len(found) == 2  # two captions, five edits each
    with pytest.raises(BadData, match="fits into 5 tokens"):
        make_examples(PAIRS[:1], STYLES["plain"], prompt_tokenizer(), 5)


def test_a_killed_training_resumes_and_ends_with_the_same_weights(tmp_path: Path, file: Path, base: str) -> None:
    whole = train(file, base, tmp_path / "whole", recipe=RECIPE)
    with pytest.raises(Killed):
        train(file, base, tmp_path / "cut", recipe=RECIPE, save_every=3, watch=killed_at(5))  # type: ignore[arg-type]
    assert not (tmp_path / "cut" / "adapter_model.safetensors").exists()
    again = train(file, base, tmp_path / "cut", recipe=RECIPE, save_every=3)
    assert again.resumed_at == 3
    assert whole.resumed_at == 0
    assert again.validation_after == whole.validation_after
    one, other = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("whole", "cut"))
    assert one.keys() == other.keys()
    assert all(one[name].equal(other[name]) for name in one)
    assert not (tmp_path / "cut" / "checkpoints").exists()
    third = train(file, base, tmp_path / "cut", recipe=RECIPE)
    assert third.resumed_at == third.steps == whole.steps


def test_other_settings_do_not_resume_it(tmp_path: Path, file: Path, base: str) -> None:
    with pytest.raises(Killed):
        train(file, base, tmp_path / "out", recipe=RECIPE, save_every=1, watch=killed_at(2))  # type: ignore[arg-type]
    with pytest.raises(BadSpec, match="another recipe"):
        train(file, base, tmp_path / "out", recipe=replace(RECIPE, rank=4))
    for file_ in (tmp_path / "out" / "checkpoints" / "checkpoint-1").glob("*.safetensors"):
        file_.write_bytes(b"broken")
    with pytest.raises(BadWeights, match="cannot be loaded"):
        train(file, base, tmp_path / "out", recipe=RECIPE)


def test_two_trainings_do_not_share_a_folder(tmp_path: Path, file: Path, base: str) -> None:
    with hold(tmp_path), pytest.raises(BadRun, match="is writing here"):
        train(file, base, tmp_path, recipe=RECIPE)


def test_an_adapter_teaches_the_labs_rewriter_captions_it_did_not_know(tmp_path: Path, file: Path) -> None:
    out = tmp_path / "adapter"
    done = train(file, "lab:rewriter", out, recipe=replace(RECIPE, style=None, epochs=8.0))
    assert done.validation_before is not None
    assert done.validation_after is not None
    assert done.validation_after < 0.5 * done.validation_before
    assert sorted(path.name for path in out.glob("*.bin")) == []
    plain, tuned = rewriter("rewriter", proposals=3), rewriter("rewriter", proposals=3, adapter=str(out))
    assert isinstance(tuned, PromptedRewriter)
    requests = [
        RewriteRequest(caption, "background", 1) for caption in {pair.caption: None for pair in split_pairs(PAIRS, 0.2)[1]}
    ]
    expected = {(pair.caption, pair.edit) for pair in PAIRS}
    hits = [
        sum(
            (request.caption, text) in expected
            for request, found in zip(requests, one.rewrite(requests), strict=True)
            for text in found.captions
        )
        for one in (plain, tuned)
    ]
    assert hits[0] == 0
    assert hits[1] >= 0.5 * 3 * len(requests)


def test_an_adapter_is_asked_as_it_was_trained(tmp_path: Path, file: Path, base: str) -> None:
    train(file, base, tmp_path / "out", recipe=replace(RECIPE, style="plain", epochs=0.2))
    assert llm_rewriter(base, LlmOptions(adapter=str(tmp_path / "out"))).style.name == "plain"
    with pytest.raises(CounterfoilError, match="trained to be asked in the style 'plain'"):
        llm_rewriter(base, LlmOptions(adapter=str(tmp_path / "out"), style="instruct"))
    other = str(llama(tmp_path / "other", positions=128))
    (tmp_path / "out" / "adapter_model.safetensors").write_bytes(b"broken")
    with pytest.raises(BadWeights):
        llm_rewriter(other, LlmOptions(adapter=str(tmp_path / "out")))


def test_bad_recipes_are_refused(tmp_path: Path, file: Path, base: str) -> None:
    for change in ({"rank": 0}, {"dropout": 1.0}, {"epochs": 0.0}):
        with pytest.raises(BadSpec, match=next(iter(change))):
            replace(RECIPE, **change)  # type: ignore[arg-type]
    with pytest.raises(BadSpec, match="no adapter fits"):
        train(file, base, tmp_path / "out", recipe=replace(RECIPE, target_modules="nothing_of_the_kind"))


def test_the_command_trains_and_says_how_to_use_it(tmp_path: Path, file: Path, base: str) -> None:
    arguments = ["train-rewriter", str(file), "--base", base, "--out", str(tmp_path / "out"), "--epochs", "0.2"]
    done = CliRunner().invoke(app, [*arguments, "--style", "plain"])
    assert done.exit_code == 0, done.output
    assert f"adapter={tmp_path / 'out'}" in done.output
    note = json.loads((tmp_path / "out" / "rewriter.json").read_text())
    assert note["style"]["name"] == "plain"
    assert "nothing to do" in CliRunner().invoke(app, [*arguments, "--style", "plain"]).output


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
