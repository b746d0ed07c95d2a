"""Vision-language models asked by two choices: presets, order bias, and answers that cannot be read."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from counterfoil import protocols
from counterfoil.core.errors import BadData, BadSpec, RunFailed
from counterfoil.parts import registry
from counterfoil.protocols.imagenet_d.questions import MAX_ANSWER, mentions, plain, read_answer
from counterfoil.store import open_run
from tests.parts.datasets.public import imagenet_d
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


# Free answers to a question with two choices are read in the styles that vision-language models and people write in


MUG, TEAPOT, UNREAD = 0, 1, None
NAMES = (("mug", "coffee mug"), ("teapot",))

STYLES = [
    ("mug", MUG),
    ("Mug.", MUG),
    ("TEAPOT", TEAPOT),
    ("A teapot", TEAPOT),
    ("The main object in this image is a mug.", MUG),
    ("It's a teapot!", TEAPOT),
    ('"mug"', MUG),
    ("'teapot'", TEAPOT),
    ("“Mug”", MUG),
    ("«teapot»", TEAPOT),
    ("„Mug“", MUG),
    ("「teapot」", TEAPOT),
    ("mug。", MUG),
    ("¡Mug!", MUG),
    ("¿teapot?", TEAPOT),
    ("これはteapotです。", TEAPOT),
    ("答案：mug", MUG),
    ("**Teapot**", TEAPOT),
    ("`mug`", MUG),
    ("mugs", MUG),
    ("There are two teapots on the table.", TEAPOT),
    ("The mug's handle is visible, so mug.", MUG),
    ("tea-pot", TEAPOT),
    ("tea pot", TEAPOT),
    ("coffee mug", MUG),
    ("A", MUG),
    ("(b)", TEAPOT),
    ("B.", TEAPOT),
    ("2)", TEAPOT),
    ("Option A", MUG),
    ("The first one.", MUG),
    ("The latter.", TEAPOT),
    ("B) teapot, since a mug has no spout", TEAPOT),
    ("Answer: mug", MUG),
    ("Final answer: teapot. The mug in the corner is smaller.", TEAPOT),
    ("It is not a mug but a teapot.", TEAPOT),
    ("This is a teapot, not a mug.", TEAPOT),
    ("I see a mug rather than a teapot.", MUG),
    ("It looks like a teapot, but it is actually a mug.", MUG),
    ("More like a mug than a teapot.", MUG),
    ("The teapot isn't there; the photo shows a mug.", MUG),
    ("I'm sorry, but I think it is a mug.", MUG),
    ("mug or teapot", UNREAD),
    ("It could be a mug or a teapot.", UNREAD),
    ("Both a mug and a teapot are visible.", UNREAD),
    ("Neither a mug nor a teapot.", UNREAD),
    ("I cannot determine whether it is a mug or a teapot.", UNREAD),
    ("I'm sorry, I can't help with that.", UNREAD),
    ("It is not a mug.", UNREAD),
    ("A vase", UNREAD),
    ("Yes", UNREAD),
    ("", UNREAD),
    ("  \n", UNREAD),
    ("smug", UNREAD),
]


@pytest.mark.parametrize(("answer", "meant"), STYLES)
def test_styles_of_answer(answer: str, meant: int | None) -> None:
    assert read_answer(answer, NAMES) == meant


BY_PLACE = ("A", "(b)", "B.", "2)", "Option A", "The first one.", "The latter.", "B) teapot, since a mug has no spout")


@pytest.mark.parametrize(("answer", "meant"), [style for style in STYLES if style[0] not in BY_PLACE])
def test_the_order_of_the_choices_does_not_matter(answer: str, meant: int | None) -> None:
    assert read_answer(answer, NAMES[::-1]) == (None if meant is None else 1 - meant)


@pytest.mark.parametrize(
    ("answer", "names", "meant"),
    [
        ("A mouse.", (("computer mouse",), ("teapot",)), 0),  # the head of a name will do
        ("two mice", (("computer mouse",), ("teapot",)), 0),
        ("a lamp", (("desk lamp",), ("street lamp",)), None),  # but not where it fits both
        ("a desk lamp", (("lamp",), ("desk lamp",)), 1),  # a longer name is not the shorter one inside it
        ("some loaves of bread", (("loaf of bread",), ("broom",)), 0),
        ("a pair of jeans", (("jeans",), ("sock",)), 0),
        ("cellphone", (("mobile phone", "cellular telephone", "cellphone"), ("remote control",)), 0),
        ("a bañana", (("banana",), ("lemon",)), 0),
        ("t shirt", (("t-shirt",), ("tie",)), 0),
        ("men’s dress shoe", (("men's dress shoe",), ("sandal",)), 0),
        ("knives", (("knife",), ("spoon",)), 0),
    ],
)
def test_names_of_several_words_and_their_kin(answer: str, names: tuple[tuple[str, ...], ...], meant: int | None) -> None:
    assert read_answer(answer, names) == meant


def test_there_are_enough_styles() -> None:
    assert len(STYLES) >= 50 and len({answer for answer, _ in STYLES}) == len(STYLES)


def test_only_the_beginning_of_a_long_answer_is_read() -> None:
    assert read_answer("mug " * 20_000, NAMES) == MUG
    assert read_answer("mug " + "and so on " * 300_000 + "rather a teapot, not a mug", NAMES) == MUG
    assert read_answer("x " * MAX_ANSWER + "teapot", NAMES) is UNREAD


def test_the_work_on_an_answer_grows_with_its_length() -> None:
    text = plain("mug teapot " * 2_000)
    assert len(mentions(text, NAMES)) == 4_000


def test_irregular_plurals_are_names_too() -> None:
    assert read_answer("a pile of strawberries", (("strawberry",), ("teapot",))) == 0
    assert read_answer("two buses", (("bus",), ("tub",))) == 0
    assert read_answer("tubes", (("tub",), ("vase",))) is UNREAD


def test_published_question_files_say_which_wrong_name_is_asked(tmp_path: Path) -> None:
    asked = {"protocol": "imagenet-d", "data": f"imagenet-d:{imagenet_d(tmp_path / 'set')}", "chats": ["fake:chat"]}
    run = protocols.run(protocols.parse(asked), tmp_path / "run", given=make_parts(chat=Scripted(min)))

    wrong = {row["id"]: (row["truth"], row["wrong"]) for row in answers(tmp_path)}
    assert wrong["background/alarm_clock/a.png"] == ("alarm clock", "binder (closed)")
    assert wrong["background/mug/b.png"] == ("mug", "alarm clock")
    assert wrong["material/binder_closed/c.png"][0] == "binder (closed)"  # no question about it: any other name
    kinds = set(run.table("trials", columns=["factor"]).read_all()["factor"].to_pylist())
    assert kinds == {"background", "material"}


def test_a_question_file_without_its_columns_is_refused(tmp_path: Path) -> None:
    root = imagenet_d(tmp_path / "set")
    (root / "questions" / "background.csv").write_text("image_dir,gt_category\na,b\n")
    asked = {"protocol": "imagenet-d", "data": f"imagenet-d:{root}", "chats": ["fake:chat"]}
    with pytest.raises(BadData, match=r"background\.csv, line 2: has no column 'gt_category'; columns are parted by tabs"):
        protocols.run(protocols.parse(asked), tmp_path / "run", given=make_parts(chat=Scripted(min)))
