"""Free answers to a question with two choices are read in the styles that vision-language models and people write in."""

from __future__ import annotations

import pytest

from counterfoil.protocols.imagenet_d.questions import MAX_ANSWER, mentions, plain, read_answer

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
