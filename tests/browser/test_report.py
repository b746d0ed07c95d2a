"""The report in a browser: open, sort, filter, look at one image, compare two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.report.made import Plan, expected_outcome

from .conftest import NASTY, OTHER

pytestmark = pytest.mark.xdist_group("browser")

GUIDED = [expected_outcome(Plan(images=60), number) for number in range(60)]


def column(page: Any, table: str, place: int) -> list[str]:
    """The values of a table's column, as they stand."""
    rows = page.locator(table).first.locator("tbody tr")
    found: list[str] = rows.evaluate_all(f"rows => rows.map(row => row.cells[{place}].dataset.value)")
    return found


def count(page: Any) -> str:
    return str(page.text_content("#gallery-count"))


def test_classes_sort_and_filter(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["one"].as_uri())
    place = [text.strip() for text in page.locator("#class-table thead th").all_text_contents()].index("PA")
    page.locator("#class-table thead th").nth(place).get_by_role("button").click()
    values = [float(value) for value in column(page, "#class-table", place)]
    assert values == sorted(values, reverse=True)
    page.locator("#class-table thead th").nth(place).get_by_role("button").press("Enter")
    assert [float(value) for value in column(page, "#class-table", place)] == sorted(values)
    assert page.locator("#class-table thead th").nth(place).get_attribute("aria-sort") == "ascending"
    page.get_by_label("Class contains").first.fill("BE")
    assert page.locator("#class-table tbody tr:visible").count() == 1
    assert page.locator(".filters[data-for=class-table] .matches").text_content() == "1 of 3 rows"


def test_the_gallery_filters_by_outcome_class_and_model(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["one"].as_uri())
    shown = [name for name in GUIDED if name != "skipped"]
    assert count(page) == f"{len(shown)} of {2 * len(shown)} trials"
    page.select_option("[name=outcome]", "fooled")
    assert count(page).startswith(f"{shown.count('fooled')} of")
    assert set(page.locator("#cards .outcome").all_text_contents()) == {"fooled"}
    page.fill("#gallery-filters [name=class]", "bee")
    assert set(page.locator("#cards .card-class").all_text_contents()) == {"bee"}
    page.click("#gallery-reset")
    assert count(page).startswith(f"{len(shown)} of")
    page.select_option("[name=model]", OTHER)  # right on everything that was made, so nobody is fooled in its eyes
    page.select_option("[name=outcome]", "fooled")
    assert page.locator("#cards").text_content() == "No image fits these filters."
    page.select_option("[name=outcome]", "kept")
    made = sum(name in ("fooled", "kept", "wrong before") for name in shown)
    assert count(page).startswith(f"{made} of")
    assert f"{OTHER} says" in page.locator(".card-said").first.text_content()


def test_from_a_class_to_its_pictures(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["one"].as_uri())
    page.get_by_role("button", name="Show cat in the gallery").click()
    assert set(page.locator("#cards .card-class").all_text_contents()) == {"cat"}


def test_names_are_shown_to_their_end(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["wordy"].as_uri())
    assert page.locator("#cards .card-class").evaluate_all("all => all.every(each => each.scrollWidth <= each.clientWidth)")


def test_no_line_of_a_command_ends_inside_an_option(page: Any, reports: dict[str, Path]) -> None:
    for width in range(320, 1280, 160):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(reports["one"].as_uri())
        lines = page.locator(".command .option").evaluate_all("all => all.map(each => each.getClientRects().length)")
        assert set(lines) == {1}
    assert "--model python:m --data" in page.text_content(".command")


def test_pages_of_the_gallery(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["one"].as_uri())
    assert page.locator("#cards .card").count() == 24
    first = page.locator("#cards .card").first.text_content()
    page.click("#page-on")
    assert page.text_content("#page-place") == "Page 2 of 3"
    assert page.locator("#cards .card").first.text_content() != first
    assert page.locator("#page-back").is_enabled()


def closed(page: Any) -> None:
    """Wait until the open image is closed; the page hears of it a moment after it is gone."""
    page.get_by_role("dialog").wait_for(state="hidden")
    page.wait_for_function("() => !location.hash.startsWith('#image')")


def test_an_image_opens_by_keyboard_and_tells_its_history(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["one"].as_uri())
    page.select_option("[name=outcome]", "fooled")
    page.select_option("[name=order]", "name")
    button = page.locator("#cards .card-open").first
    button.focus()
    page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog")
    dialog.locator(".steps .step").first.wait_for()
    assert "img 1.png" in dialog.locator(".detail-id").text_content()
    assert dialog.locator(".pictures img").count() == 5
    dialog.locator(".pictures img").last.evaluate("image => image.decode()")
    assert dialog.locator(".pictures img").evaluate_all("images => images.every(image => image.naturalWidth > 0)")
    assert dialog.locator(".step.wrong").count() == 1
    assert "wrong: cat" in dialog.locator(".step.wrong").text_content()
    assert OTHER in dialog.text_content()
    first = dialog.locator(".detail-id").text_content()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("before => document.querySelector('.detail-id').textContent !== before", arg=first)
    page.keyboard.press("Escape")
    closed(page)
    page.wait_for_function("() => document.activeElement.className === 'card-open'")


def test_an_image_has_a_page_of_its_own(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["one"].as_uri())
    page.select_option("[name=outcome]", "unvalidated")
    page.locator("#cards .card-open").first.click()
    page.get_by_role("link", name="Own page").click()
    page.locator(".why").wait_for()
    assert "Rejected: the oracle does not see the class in the plain reconstruction" in page.text_content(".why")
    assert "SHA-256 of the pixels" in page.text_content("main")
    page.goto(reports["one"].with_name("image.html").as_uri() + "#1/001/nothing")
    page.locator(".empty").wait_for()
    assert page.text_content("h1") == "No such image"


def test_two_runs_side_by_side(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["two"].as_uri())
    assert page.locator("table.compare").first.locator("tbody tr").count() == 2
    page.locator("table.compare").first.get_by_role("button", name="Run").click()
    page.locator("table.compare").first.get_by_role("button", name="Run").click()
    assert column(page, "table.compare", 0) == ["python:n", "python:m"]
    page.select_option("#gallery-filters [name=run]", label="python:n")
    assert all("python:n" in text for text in page.locator("#cards .card").all_text_contents())
    page.locator("#cards .card-open").first.click()
    page.get_by_role("link", name="python:m, guided").click()
    page.wait_for_function("() => document.querySelector('.detail-id').textContent.includes('python:m')")
    page.keyboard.press("Escape")
    closed(page)
    page.get_by_role("navigation", name="Pages of this report").get_by_role("link", name="python:n").click()
    page.wait_for_url("**/run-2.html")
    assert page.text_content("h1") == "python:n"


def test_markup_in_names_is_text(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["nasty"].as_uri())
    page.locator("#cards .card").first.wait_for()
    page.locator("#cards .card-open").first.click()
    page.locator(".steps, .quiet").first.wait_for()
    assert NASTY in page.text_content("body")
    assert page.title() != "owned"
    assert page.locator("main script, main img[src='x']").count() == 0


def test_a_script_in_the_page_would_not_run(browser: Any, reports: dict[str, Path]) -> None:
    page = browser.new_page()
    page.goto(reports["one"].as_uri())
    blocked = page.evaluate(
        """() => new Promise((done) => {
            document.addEventListener("securitypolicyviolation", (event) => done(event.violatedDirective), { once: true });
            const script = document.createElement("script");
            script.textContent = "document.title = 'owned'";
            document.head.append(script);
            setTimeout(() => done("ran"), 2000);
        })"""
    )
    page.close()
    assert blocked.startswith("script-src")
