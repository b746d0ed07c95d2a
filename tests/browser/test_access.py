"""Pages are accessible: names, headings, alternative texts, visible focus, and contrast as the browser computes it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .checks import focus_is_visible, problems

pytestmark = pytest.mark.xdist_group("browser")

WIDTHS = {"desk": 1280, "phone": 390}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["one", "two", "board"])
def test_pages(page: Any, reports: dict[str, Path], name: str, width: str, scheme: str) -> None:
    page.set_viewport_size({"width": WIDTHS[width], "height": 844})
    page.emulate_media(color_scheme=scheme)
    page.goto(reports[name].as_uri())
    page.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
    assert problems(page) == []


@pytest.mark.parametrize("name", ["long", "none", "half", "wordy"])
def test_pages_of_odd_runs_on_a_phone(page: Any, reports: dict[str, Path], name: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(reports[name].as_uri())
    assert page.locator("#cards .card").count() > 0
    assert problems(page) == []


@pytest.mark.parametrize("name", ["two", "board"])
def test_names_in_wide_tables_are_not_broken_into_letters_on_a_phone(page: Any, reports: dict[str, Path], name: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(reports[name].as_uri())
    heads = page.locator("table:not(.blocks) tbody th:visible")
    assert heads.count() > 1
    assert heads.evaluate_all("all => all.every(each => each.offsetWidth >= 96)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_one_image(page: Any, reports: dict[str, Path], scheme: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.emulate_media(color_scheme=scheme)
    page.goto(reports["one"].as_uri())
    page.select_option("[name=outcome]", "fooled")
    page.locator("#cards .card-open").first.click()
    page.locator(".steps .step").first.wait_for()
    assert problems(page) == []
    assert page.locator("#detail-place").evaluate_all("all => all.every(each => each.offsetHeight < 32)")


@pytest.mark.parametrize("name", ["one", "two", "board"])
def test_print(page: Any, reports: dict[str, Path], name: str) -> None:
    page.set_viewport_size({"width": 718, "height": 1000})  # A4 less its margins
    page.emulate_media(media="print", color_scheme="dark")
    page.goto(reports[name].as_uri())
    assert problems(page) == []
    assert not page.locator(".filters:visible").count()


@pytest.mark.parametrize("name", ["one", "board"])
def test_focus_can_be_seen(page: Any, reports: dict[str, Path], name: str) -> None:
    page.goto(reports[name].as_uri())
    assert focus_is_visible(page) == []


def test_outcomes_are_told_by_more_than_colour(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["one"].as_uri())
    signs = page.eval_on_selector_all(
        ".glossary .outcome", "all => all.map(each => getComputedStyle(each, '::before').content + each.textContent)"
    )
    assert len(set(signs)) == len(signs) > 3


def test_the_checks_find_what_is_wrong(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["one"].as_uri())
    page.evaluate(
        """() => {
            const add = (name, attributes, text) => {
                const element = document.createElement(name);
                for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
                element.textContent = text;
                document.querySelector("main").append(element);
                return element;
            };
            add("img", {}, "");
            add("button", { type: "button" }, "");
            add("input", { type: "text" }, "");
            const pale = add("p", { class: "pale" }, "hard to read");
            pale.style.setProperty("color", "rgb(190, 190, 190)");
        }"""
    )
    found = " ".join(problems(page))
    for wanted in ("no alternative text", "no name: button", "no name: input", "contrast"):
        assert wanted in found
