"""Vision-language models asked by two choices: presets, order bias, and answers that cannot be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterfoil import protocols
from counterfoil.core.errors import BadSpec, RunFailed
from counterfoil.parts import registry
from counterfoil.store import open_run
from tests.parts.endpoint import serve
from tests.protocols.imagenet_d.world import Scripted, make_parts, spec


def ask(tmp_path: Path, rule: Callable[[str, str], str], **changes: Any) -> dict[str, Any]:
    parts = make_parts(chat=Scripted(rule))
    run = protocols.run(spec(chats=["fake:chat"], **changes), tmp_path / "run", given=parts)
    assert run.results is not None
    return run.results


def answers(folder: Path) -> list[dict[str, Any]]:
    table = next((folder / "run" / "stages").glob("answers-*.jsonl"))
    return [json.loads(line) for line in table.read_text(encoding="utf-8").splitlines()]


def test_who_always_says_the_first_gains_nothing_when_choices_are_shuffled(tmp_path: Path) -> None:
    fair = ask(tmp_path / "fair", lambda first, second: f"It is a {first}.")
    assert 20 <= fair["models"]["fake:chat"]["mined"]["value"] <= 80
    bias = fair["order_bias"]["fake:chat"]
    assert bias["truth_first"]["value"] == 100 and bias["truth_second"]["value"] == 0
    assert bias["bias"]["value"] == 100 and bias["consistent"]["value"] == 0
    assert bias["p"] == 2 / 2**7  # seven objects in places: three images of each are one coin
    assert "Two-choice questions" in protocols.get("imagenet-d").text(fair)
    paper = ask(tmp_path / "paper", lambda first, second: f"It is a {first}.", preset="paper")
    assert paper["models"]["fake:chat"]["mined"]["value"] == 100  # the truth always stands first there


def test_an_answer_that_means_neither_is_wrong_or_dropped(tmp_path: Path) -> None:
    def rule(first: str, second: str) -> str:
        return "I cannot tell." if "mug" in (first, second) else min(first, second)

    fair = ask(tmp_path / "fair", rule, questions={"both_orders": False})
    paper = ask(tmp_path / "paper", rule, preset="paper", questions={"both_orders": False})
    assert fair["models"]["fake:chat"]["mined"]["n"] > paper["models"]["fake:chat"]["mined"]["n"] > 0
    rows = answers(tmp_path / "fair")
    unread = sum(row["right"] is None for row in rows)
    assert 0 < unread < len(rows)
    for found in (fair, paper):  # both say how many could not be read, whatever becomes of them
        bias = found["order_bias"]["fake:chat"]
        assert (bias["unread"], bias["asked"]) == (unread, len(rows))
        assert bias["consistent"]["value"] is None and bias["truth_first"]["value"] is not None
    assert f"{unread} of {len(rows)}" in protocols.get("imagenet-d").text(fair)
    assert fair["order_bias"]["fake:chat"]["truth_second"]["value"] is not None  # the order was drawn at random
    assert paper["order_bias"]["fake:chat"]["bias"]["value"] is None and paper["order_bias"]["fake:chat"]["p"] is None


def test_the_wrong_choice_is_the_one_models_fall_for(tmp_path: Path) -> None:
    ask(tmp_path, lambda first, second: first)
    rows = answers(tmp_path)
    after = {"mug": "sock", "sock": "lamp", "lamp": "bag", "bag": "mug"}
    assert rows and all(after[row["truth"]] == row["wrong"] for row in rows)


def test_the_wrong_choice_is_on_record_and_an_unread_one_is_none(tmp_path: Path) -> None:
    ask(tmp_path, lambda first, second: "no idea" if "sock" in (first, second) else first)
    rows = {row["id"]: row for row in answers(tmp_path)}
    run = open_run(tmp_path / "run")
    said = [(rows[each.trial_id.rpartition("#")[0]], each) for each in run.predictions("fake:chat")]
    assert {row["right"] for row, _ in said} == {True, False, None}
    for row, each in said:
        named = row["truth"] if row["right"] else row["wrong"]
        assert each.predicted == (-1 if row["right"] is None else run.classes.index(named))


def test_a_question_without_its_places_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadSpec, match=r"no place for \{second\}"):
        protocols.run(spec(questions={"text": "Is it {first}?"}), tmp_path / "run", given=make_parts())


def test_an_endpoint_is_asked_with_the_picture_and_may_break(tmp_path: Path) -> None:
    with serve() as endpoint:
        seen: list[Any] = []

        def answer(body: bytes) -> Any:
            seen.append(json.loads(body))
            words = seen[-1]["messages"][0]["content"][1]["text"]
            return (
                {"choices": [{"message": {"content": words.rpartition("[")[2].split(",")[0]}}]} if len(seen) < 8 else {"oops": 1}
            )

        endpoint.answer = answer  # type: ignore[method-assign]
        chat = registry.create("chat", endpoint.url, {"model": "m", "retries": 0})
        parts = make_parts(chat=chat)
        with pytest.raises(RunFailed, match="resumes once the endpoint is back"):
            protocols.run(spec(chats=["fake:chat"], engine={"batch": 2}), tmp_path / "run", given=parts)
        assert seen[0]["model"] == "m" and seen[0]["messages"][0]["content"][0]["image_url"]["url"].startswith(
            "data:image/png;base64,"
        )
