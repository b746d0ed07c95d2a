"""Training an adapter: what it learns from, that it goes on after a kill, and that it helps."""

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
from counterfoil.parts.language import checkpoints, pairs
from counterfoil.parts.language.examples import HIDDEN, examples
from counterfoil.parts.language.llm import LlmRewriter, llm_rewriter
from counterfoil.parts.language.pairs import Pair
from counterfoil.parts.language.prompting import STYLES
from counterfoil.parts.language.tuning import Recipe, Step, train
from counterfoil_lab.language import rewriter
from tests.language.small_models import llama

pytestmark = pytest.mark.xdist_group("tuning")
PLACES = ("on a beach", "in a city", "in a desert", "on a road", "in a forest", "on water")
PAIRS = [
    Pair(f"a picture of a {thing} {place}", "background", f"a picture of a {thing} {other}")
    for thing in ("boot", "bag", "dress")
    for place in PLACES
    for other in PLACES
    if place != other
]
RECIPE = Recipe(style="wardrobe", batch=16, epochs=2.0, learning_rate=1e-2, held_out=0.2, dropout=0.1)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    pairs.write(tmp_path / "pairs.jsonl", PAIRS)
    return tmp_path / "pairs.jsonl"


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(llama(tmp_path_factory.mktemp("base")))


class Killed(Exception):
    """What stands for a kill."""


def killed_at(number: int) -> object:
    def watch(step: Step) -> None:
        if step.number == number:
            raise Killed

    return watch


def test_pairs_go_through_a_file_unchanged(file: Path) -> None:
    assert pairs.read(file) == PAIRS


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "line 2: no JSON"),
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
        pairs.read(file)


def test_files_without_pairs(tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("\n")
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\x00")
    for name, complaint in (("empty.jsonl", "no pairs"), ("bytes.jsonl", "UTF-8"), ("none.jsonl", "cannot be read")):
        with pytest.raises(BadData, match=complaint):
            pairs.read(tmp_path / name)


def test_no_caption_is_both_trained_on_and_tried() -> None:
    learned, tried = pairs.held_out(PAIRS, 0.3)
    assert tried
    assert len(learned) + len(tried) == len(PAIRS)
    assert not {pair.caption for pair in learned} & {pair.caption for pair in tried}


def test_only_the_answer_is_learned() -> None:
    tokenizer = prompt_tokenizer()
    pair = Pair("a photo of a red silk bag on a road", "adjective", "a photo of a red wool bag on a road")
    example = examples([pair], STYLES["wardrobe"], tokenizer, 64)[0]
    assert tokenizer.decode(example.tokens[1:8]) == "material : a photo of a red"
    wanted = [token for token in example.wanted if token != HIDDEN]
    assert tokenizer.decode(wanted, skip_special_tokens=True) == pair.edit
    assert wanted[-1] == tokenizer.eos_token_id


def test_numbered_answers_hold_all_edits_of_a_caption() -> None:
    found = examples(PAIRS[:10], STYLES["instruct"], prompt_tokenizer(), 1000)
    assert len(found) == 2  # two captions, five edits each
    with pytest.raises(BadData, match="fits into 5 tokens"):
        examples(PAIRS[:1], STYLES["plain"], prompt_tokenizer(), 5)


def test_a_killed_training_goes_on_and_ends_with_the_same_weights(tmp_path: Path, file: Path, base: str) -> None:
    whole = train(file, base, tmp_path / "whole", recipe=RECIPE)
    with pytest.raises(Killed):
        train(file, base, tmp_path / "cut", recipe=RECIPE, save_every=3, watch=killed_at(5))  # type: ignore[arg-type]
    assert not (tmp_path / "cut" / "adapter_model.safetensors").exists()
    again = train(file, base, tmp_path / "cut", recipe=RECIPE, save_every=3)
    assert again.resumed_at == 3
    assert whole.resumed_at == 0
    assert again.held_out_after == whole.held_out_after
    one, other = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("whole", "cut"))
    assert one.keys() == other.keys()
    assert all(one[name].equal(other[name]) for name in one)
    assert not (tmp_path / "cut" / checkpoints.CHECKPOINT).exists()
    third = train(file, base, tmp_path / "cut", recipe=RECIPE)
    assert third.resumed_at == third.steps == whole.steps


def test_other_settings_do_not_go_on_with_it(tmp_path: Path, file: Path, base: str) -> None:
    with pytest.raises(Killed):
        train(file, base, tmp_path / "out", recipe=RECIPE, save_every=1, watch=killed_at(2))  # type: ignore[arg-type]
    with pytest.raises(BadSpec, match="another recipe"):
        train(file, base, tmp_path / "out", recipe=replace(RECIPE, rank=4))
    (tmp_path / "out" / checkpoints.CHECKPOINT).write_bytes(b"broken")
    with pytest.raises(BadWeights, match="cannot be loaded"):
        train(file, base, tmp_path / "out", recipe=RECIPE)


def test_two_trainings_do_not_share_a_folder(tmp_path: Path, file: Path, base: str) -> None:
    with checkpoints.Folder(tmp_path / "out", {}), pytest.raises(BadRun, match="is writing here"):
        train(file, base, tmp_path / "out", recipe=RECIPE)


def test_an_adapter_teaches_the_labs_rewriter_captions_it_did_not_know(tmp_path: Path, file: Path) -> None:
    out = tmp_path / "adapter"
    done = train(file, "lab:rewriter", out, recipe=replace(RECIPE, epochs=8.0))
    assert done.held_out_before is not None
    assert done.held_out_after is not None
    assert done.held_out_after < 0.5 * done.held_out_before
    assert sorted(path.name for path in out.glob("*.bin")) == []
    plain, tuned = rewriter("rewriter", variations=3), rewriter("rewriter", variations=3, adapter=str(out))
    assert isinstance(tuned, LlmRewriter)
    requests = [
        RewriteRequest(caption, "background", 1) for caption in {pair.caption: None for pair in pairs.held_out(PAIRS, 0.2)[1]}
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
    assert llm_rewriter(base, adapter=str(tmp_path / "out")).style.name == "plain"
    with pytest.raises(CounterfoilError, match="trained to be asked in the style 'plain'"):
        llm_rewriter(base, adapter=str(tmp_path / "out"), style="instruct")
    other = str(llama(tmp_path / "other", positions=128))
    (tmp_path / "out" / "adapter_model.safetensors").write_bytes(b"broken")
    with pytest.raises(BadWeights):
        llm_rewriter(other, adapter=str(tmp_path / "out"))


def test_bad_recipes_are_refused(tmp_path: Path, file: Path, base: str) -> None:
    for change in ({"rank": 0}, {"dropout": 1.0}, {"epochs": 0.0}):
        with pytest.raises(BadSpec, match=next(iter(change))):
            replace(RECIPE, **change)  # type: ignore[arg-type]
    with pytest.raises(BadSpec, match="no adapter fits"):
        train(file, base, tmp_path / "out", recipe=replace(RECIPE, targets="nothing_of_the_kind"))


def test_the_command_trains_and_says_how_to_use_it(tmp_path: Path, file: Path, base: str) -> None:
    arguments = ["train-rewriter", str(file), "--base", base, "--out", str(tmp_path / "out"), "--epochs", "0.2"]
    done = CliRunner().invoke(app, [*arguments, "--style", "plain"])
    assert done.exit_code == 0, done.output
    assert f"adapter={tmp_path / 'out'}" in done.output
    note = json.loads((tmp_path / "out" / "rewriter.json").read_text())
    assert note["style"] == "plain"
    assert "nothing to do" in CliRunner().invoke(app, [*arguments, "--style", "plain"]).output
