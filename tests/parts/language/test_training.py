"""Training an adapter: what it learns from, that it resumes after a kill, and that it helps."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from lab.training.wording import prompt_tokenizer
from safetensors.torch import load_file
from typer.testing import CliRunner

from counterfoil.cli.app import app
from counterfoil.core.errors import BadData, BadRun, BadSpec, BadWeights, CounterfoilError
from counterfoil.parts.contracts import RewriteRequest
from counterfoil.parts.language.prompted_rewriter import STYLES, LlmOptions, PromptedRewriter, llm_rewriter, style_of
from counterfoil.parts.language.training import (
    IGNORED,
    Pair,
    Recipe,
    TrainingStep,
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
    def watch(step: TrainingStep) -> None:
        if step.number == number:
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
