"""Charts: every value where it belongs, with words and a table that say the same."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from counterfoil.report.charts import classes, forest, heat, ladder, steps
from counterfoil.report.charts.svg import NARROW, WIDE, Scale, apart, shortened, tag
from counterfoil.report.numbers import Number

from .pages import read


@dataclass(frozen=True)
class Named:
    label: str
    results: Mapping[str, Any] | None


def estimate(value: float | None, spread: float = 5.0) -> dict[str, Any]:
    if value is None:
        return {"value": None, "low": None, "high": None, "n": 0, "note": "nothing"}
    return {"value": value, "low": max(value - spread, 0), "high": min(value + spread, 100), "n": 50}


RESULTS: dict[str, Any] = {
    "SA_matched": estimate(95),
    "PA_reconstruction": estimate(90),
    "PA_random": estimate(88),
    "PA": estimate(40),
    "curve": [{"step": step, "guided": estimate(90 - 10 * step), "random": estimate(90 - step)} for step in range(6)],
    "per_class": {"<b>": {"VR": estimate(90), "PA": estimate(70)}, "cat": {"VR": estimate(50), "PA": estimate(None)}},
}


def test_charts_are_well_formed_in_both_widths() -> None:
    for figure in (ladder.ladder(RESULTS, name="l"), steps.of_one(RESULTS, name="s"), classes.by_class(RESULTS, name="c")):
        assert figure is not None
        for drawn, width in ((figure.wide, WIDE), (figure.narrow, NARROW)):
            root = ElementTree.fromstring(drawn)
            assert root.attrib["viewBox"].split()[2] == str(width)
            for text in root.iter("text"):
                assert 0 <= float(text.attrib["x"]) <= width
        assert figure.description
        assert all(len(row) == len(figure.head) for row in figure.rows)


def test_the_ladder_charges_each_loss_to_its_cause() -> None:
    figure = ladder.ladder(RESULTS, name="l")
    assert figure is not None
    assert [(row[1], row[3], row[4]) for row in figure.rows] == [
        ("95.0", "", ""),
        ("90.0", "−5.0 points", "the generator"),
        ("88.0", "−2.0 points", "distance alone"),
        ("40.0", "−48.0 points", "the search: charged to the model"),
    ]


def test_the_words_beside_the_ladder_have_room() -> None:
    figure = ladder.ladder({**RESULTS, "PA": estimate(0), "PA_random": estimate(100)}, name="l")
    assert figure is not None
    root = ElementTree.fromstring(figure.wide)
    for text in root.iter("text"):
        if text.attrib["text-anchor"] == "start":
            words = text.text or ""
            assert shortened(words, WIDE - float(text.attrib["x"]), size=12) == words
    (full,) = {float(text.attrib["x"]) for text in root.iter("text") if text.text == "100.0 %"}
    assert full - len("100.0 %") * 8.5 > max(float(disc.attrib["cx"]) for disc in root.iter("circle"))


def test_the_curve_goes_through_the_values() -> None:
    figure = steps.of_one(RESULTS, name="s")
    assert figure is not None
    line = re.search(r'<polyline points="([^"]+)" class="curve guided"', figure.wide)
    assert line is not None
    heights = [float(point.split(",")[1]) for point in line.group(1).split()]
    falls = [after - before for before, after in pairwise(heights)]
    assert len(heights) == 6
    assert max(falls) - min(falls) < 0.2  # equal losses are equal heights
    assert figure.rows[0] == ("0", "90.0 (85.0 to 95.0)", "90.0 (85.0 to 95.0)")


def test_the_weakest_class_comes_first_and_names_are_text() -> None:
    figure = classes.by_class(RESULTS, name="c")
    assert figure is not None
    assert [row[0] for row in figure.rows] == ["<b>", "cat"]
    assert "&lt;b&gt;" in figure.wide


def test_a_heat_map_writes_every_value_and_frames_what_it_is_told_to() -> None:
    cells = {("a", "a"): Number(10.0, 5.0, 15.0, 9), ("a", "b"): Number(95.0, 90.0, 99.0, 9), ("b", "a"): Number()}
    figure = heat.heat(
        "h", "Heat", rows=["a", "b"], columns=["a", "b"], cells=cells, words="w", corner="", framed=frozenset({("a", "a")})
    )
    assert figure is not None
    root = ElementTree.fromstring(figure.wide)
    assert [rect.attrib["class"] for rect in root.iter("rect")] == [
        "heat heat-4 framed",
        "heat heat-0",
        "heat heat-none",
        "heat heat-none",
    ]
    assert [text.text for text in root.iter("text") if "heat-text" in text.attrib["class"]] == ["10.0", "95.0", "–", "–"]
    assert figure.rows == [("a", "10.0 (5.0 to 15.0)", "95.0 (90.0 to 99.0)"), ("b", "–", "–")]
    assert heat.heat("h", "H", rows=["a"], columns=["a"], cells={("a", "a"): Number()}, words="", corner="") is None


def test_no_chart_without_numbers() -> None:
    assert ladder.ladder({}, name="l") is None
    assert steps.of_one({"curve": []}, name="s") is None
    assert classes.by_class({"per_class": {}}, name="c") is None


def test_a_page_gives_each_chart_words_and_a_table(report: Path) -> None:
    page = read(report / "index.html")
    for figure in page.all("figure"):
        name = figure.attributes["id"]
        assert "The same as a table" in figure.text
        words = next(element for element in page.all("p") if element.attributes.get("id") == f"{name}-text")
        assert len(words.text) > 40
    names = {figure.attributes["id"].removeprefix("chart-") for figure in page.all("figure")}
    assert names == {"ladder", "steps", "fmr", "classes", "bounds"}


def test_labels_are_moved_apart_and_stay_inside() -> None:
    assert apart([50, 52, 10], least=16, low=0, high=100) == [50, 66, 10]
    crowded = apart([95, 96, 97], least=16, low=0, high=100)
    assert crowded[2] == 100
    assert sorted(crowded) == crowded
    assert all(after - before >= 16 for before, after in pairwise(crowded))


@pytest.mark.parametrize("text", ["x" * 60, "名" * 60, "ζ" + "x" * 59])
def test_long_labels_are_shortened(text: str) -> None:
    assert "…" in shortened(text, 100)
    assert len(shortened(text, 100)) < 20
    assert shortened("short", 100) == "short"


def test_shortened_names_of_a_series_stay_apart() -> None:
    names = [f"golden pheasant of western China, plumage {number}" for number in range(20)]
    assert len({shortened(name, 120) for name in names}) == len(names)
    assert shortened(names[7], 120).startswith("golden")


def test_one_finished_run_among_several_is_named_in_its_chart() -> None:
    finished, other = Named("lab:a", {"FMR": estimate(50)}), Named("lab:b", None)
    figure = forest.forest([finished, other], name="f")
    assert figure is not None
    assert figure.title == "FMR of lab:a beside its control"


def test_values_outside_a_scale_stay_on_it() -> None:
    assert Scale(0, 100, 10, 20)(150) == 20


def test_elements_escape_what_they_are_given() -> None:
    assert tag("text", "<b>", class_='"x"', stroke_width=1.5) == '<text class="&#34;x&#34;" stroke-width="1.5">&lt;b&gt;</text>'


def test_classes_of_one_or_two_images_are_not_drawn() -> None:
    few = {"VR": {**estimate(50), "n": 2}, "PA": {**estimate(50), "n": 1}}
    assert classes.by_class({"per_class": {"cat": few, "dog": few}}, name="c") is None
    many = {"VR": estimate(80), "PA": estimate(70)}
    figure = classes.by_class({"per_class": {"cat": few, "dog": many}}, name="c")
    assert figure is not None and [row[0] for row in figure.rows] == ["dog"]
    assert "Lowest accuracy after guided steps among those drawn: dog" in figure.description
    assert "1 of 2 classes; the table of classes has them" in figure.description
