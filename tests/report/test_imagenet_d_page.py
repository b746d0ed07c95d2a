"""The page about ImageNet-D runs: whole, unfinished, without mining, and with names that try to break out."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil import protocols, store
from counterfoil.core.records import Verdict
from counterfoil.metrics.imagenet_d import BIAS
from counterfoil.protocols.reading import write_report
from counterfoil.store.later import Asked, record
from tests.protocols.imagenet_d.world import Scripted, given, spec
from tests.report.pages import read


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> store.Run:
    parts = given(chat=Scripted(lambda first, second: first))
    return protocols.run(spec(chats=["fake:chat"]), tmp_path_factory.mktemp("page") / "run", given=parts)


def page(run: store.Run, out: Path) -> str:
    return write_report([run], out).read_text(encoding="utf-8")


def test_it_shows_every_table_and_the_statement_under_those_with_surrogates(run: store.Run, tmp_path: Path) -> None:
    text = page(run, tmp_path / "report")
    for title in (
        "Models",
        "Leave one surrogate out",
        "By kind of nuisance",
        "What mistakes follow",
        "Two-choice questions",
        "Pictures of the set",
    ):
        assert title in text
    plain = " ".join(text.replace("&#39;", "'").split())
    assert plain.count(BIAS) == 1  # under the models
    kept = run.results["counts"]["validated"]
    assert f"Only {kept} pictures are in the set. Intervals are wide" in plain
    assert text.count('href="#selection-bias"') == 3 and text.count('id="selection-bias"') == 1  # leave-one-out, kinds, mistakes
    assert text.count("<img") == run.results["counts"]["kept"]
    for name in ("spec.yaml", "results.json", "prompts.jsonl", "mined.jsonl"):
        assert (tmp_path / "report" / "downloads" / "1" / name).is_file()
    assert "style=" not in text and "<script>" not in text
    assert "<bdi>null</bdi>" not in text and "<bdi>&#34;" not in text  # settings in words


@pytest.mark.parametrize("preset", ["fair", "paper"])
def test_what_vision_language_models_answered_is_shown(preset: str, tmp_path: Path) -> None:
    """Who goes by the place of the truth, how many answers mean neither choice, and what becomes of those."""
    parts = given(first=Scripted(lambda first, second: first), mute=Scripted(lambda first, second: "I cannot tell."))
    run = protocols.run(spec(chats=["fake:first", "fake:mute"], preset=preset), tmp_path / "run", given=parts)
    out = write_report([run], tmp_path / "report")
    rows, text = read(out).rows, " ".join(out.read_text(encoding="utf-8").split())
    kept = run.results["counts"]["kept"]
    (order,) = [row for row in rows if row.startswith("fake:first 100.0 ")]
    assert " 0.0 " in order and order.endswith(f"0 of {2 * kept}")
    (mute,) = [row for row in rows if row.startswith("fake:mute") and row.endswith(f"{2 * kept} of {2 * kept}")]
    assert mute.split()[1:4] == ["–", "–", "–"]
    wrong = "An answer that means neither choice counts as wrong." in text
    assert wrong == (preset == "fair") and ("Answers that mean neither choice are left out." in text) != wrong
    assert ("<bdi>fake:mute</bdi>: <b>neither choice</b>" in text) == wrong
    assert [row for row in rows if row.startswith("fake:first two choices – ") and row.endswith(" – – –")]  # nothing made up


def test_votes_that_came_later_are_on_the_page(tmp_path: Path) -> None:
    run = protocols.run(spec(), tmp_path / "run", given=given())
    kept = [trial.trial_id for trial in run.trials if trial.ending == "made"]
    run.append(verdicts=[Verdict(kept[0], "made", "human", False, 0.0, -1), Verdict(kept[1], "made", "human", True, 1.0, -1)])
    text = page(store.open_run(run.path), tmp_path / "report")
    assert f"1 accepted, 1 rejected, {len(kept) - 2} pending" in text and "people: no" in text


def test_an_oracle_asked_later_that_shares_weights_is_marked(tmp_path: Path) -> None:
    run = protocols.run(spec(), tmp_path / "run", given=given())
    record(run.path, Asked("oracle", "classifier:twin", {}, "not independent: …"))
    assert "The oracle classifier:twin, which was asked later, is not independent: …." in page(run, tmp_path / "report")


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    run = protocols.run(spec(), tmp_path / "run", given=given(), stage="paintings")
    assert "This run is not finished" in page(run, tmp_path / "report")


def test_a_set_that_was_only_tested_on_has_no_surrogates_on_its_page(run: store.Run, tmp_path: Path) -> None:
    from counterfoil.report.export import export

    export(run, tmp_path / "set")
    changes = {"painter": None, "surrogates": [], "oracle": None, "data": str(tmp_path / "set"), "models": ["fake:unseen"]}
    later = protocols.run(spec(**changes), tmp_path / "later", given=given())
    text = page(later, tmp_path / "report")
    assert "Accuracy on the set" in text and "Selection bias" not in text and "Leave one" not in text
    assert "before and after mining" not in text and "What mistakes follow" in text
    assert "No nuisance is found to pull a model" in text and "Strongest pulls" not in text
    assert "no oracle was asked" in text and "nobody has looked" not in text and "From prompts" not in text
    assert "no oracle was asked" in protocols.get("imagenet-d").text(later.results)


def test_a_model_without_a_mistake_has_none_to_sort(run: store.Run, tmp_path: Path) -> None:
    from counterfoil.report.export import export

    export(run, tmp_path / "set")
    changes = {"painter": None, "surrogates": [], "oracle": None, "data": str(tmp_path / "set"), "models": ["fake:good"]}
    text = page(protocols.run(spec(**changes), tmp_path / "later", given=given()), tmp_path / "report")
    assert "There are no mistakes to sort." in text and "Strongest pulls" not in text and "Confusions on the set" not in text


def test_names_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    evil = '<script>alert("x")</script>'
    parts = given(**{evil: given().parts["fake:good"]})
    run = protocols.run(spec(models=[f"fake:{evil}"]), tmp_path / "run", given=parts)
    text = page(run, tmp_path / "report")
    assert evil not in text and "&lt;script&gt;" in text
