"""The report in a browser: open, sort, filter, look at one image, compare two runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from counterfoil import protocols
from counterfoil.protocols.reading import write_report
from tests.protocols.imagenet_d import world as squares
from tests.report.made import Plan, expected_outcome

from .conftest import NASTY, OTHER

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def painted_report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("painted")
    run = protocols.run(squares.spec(), folder / "run", given=squares.make_parts())
    return write_report([run], folder / "report")


GUIDED = [expected_outcome(Plan(images=60), number) for number in range(60)]


def count(page: Any) -> str:
    return str(page.text_content("#gallery-count"))


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
    page.select_option("[name=model]", OTHER)  # right on everything that was made, so it is never fooled
    page.select_option("[name=outcome]", "fooled")
    assert page.locator("#cards").text_content() == "No image fits these filters."
    page.select_option("[name=outcome]", "kept")
    made = sum(name in ("fooled", "kept", "already wrong") for name in shown)
    assert count(page).startswith(f"{made} of")
    assert f"{OTHER} says" in page.locator(".card-said").first.text_content()


def test_names_are_shown_to_their_end(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["wordy"].as_uri())
    assert page.locator("#cards .card-class").evaluate_all("all => all.every(each => each.scrollWidth <= each.clientWidth)")


def test_pages_of_the_gallery(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["one"].as_uri())
    assert page.locator("#cards .card").count() == 24
    first = page.locator("#cards .card").first.text_content()
    page.click("#page-on")
    assert page.text_content("#page-place") == "Page 2 of 3"
    assert page.locator("#cards .card").first.text_content() != first
    assert page.locator("#page-back").is_enabled()


def wait_until_closed(page: Any) -> None:
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
    assert dialog.locator(".images img").count() == 5
    dialog.locator(".images img").last.evaluate("image => image.decode()")
    assert dialog.locator(".images img").evaluate_all("images => images.every(image => image.naturalWidth > 0)")
    assert dialog.locator(".step.wrong").count() == 1
    assert "wrong: cat" in dialog.locator(".step.wrong").text_content()
    assert OTHER in dialog.text_content()
    first = dialog.locator(".detail-id").text_content()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("before => document.querySelector('.detail-id').textContent !== before", arg=first)
    page.keyboard.press("Escape")
    wait_until_closed(page)
    page.wait_for_function("() => document.activeElement.className === 'card-open'")


@pytest.mark.parametrize("name", ["class=cat", "cat"])
def test_slices_and_classes_lead_to_the_gallery(page: Any, reports: dict[str, Path], name: str) -> None:
    page.goto(reports["one"].as_uri())
    page.get_by_text("All 3 classes").click()
    page.get_by_role("button", name=name, exact=True).first.click()
    assert set(page.locator("#cards .card-class").all_text_contents()) == {"cat"}


def test_an_address_with_a_filter_opens_the_gallery_filtered(page: Any, reports: dict[str, Path]) -> None:
    page.goto(f"{reports['one'].as_uri()}#show=class=cat&run=1")
    assert set(page.locator("#cards .card-class").all_text_contents()) == {"cat"}


def test_long_tables_sort_and_find_rows(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["long"].as_uri())
    page.get_by_text("All 1,000 classes").click()
    block = page.locator(".table-block:has(.for-table)").first
    heading = block.locator("thead th").nth(1)
    heading.get_by_role("button").click()
    assert heading.get_attribute("aria-sort") in ("ascending", "descending")
    block.get_by_label("Find").fill("名前999")
    assert block.locator("tbody tr:visible").count() == 1
    assert block.locator(".matches").text_content() == "1 of 1,000 rows"


def test_the_first_screen_shows_pairs_and_key_numbers(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["one"].as_uri())
    for selector in (".pairs.strip img", ".key-numbers tbody tr:last-child"):
        box = page.locator(selector).last.bounding_box()
        assert box is not None and box["y"] + box["height"] < 900, selector
    assert page.locator(".pairs.strip img").evaluate_all("all => all.every(each => each.complete && each.naturalWidth > 0)")


def test_a_pair_opens_its_image(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["one"].as_uri())
    page.locator(".strip a").first.click()
    page.get_by_role("dialog").locator(".steps .step").first.wait_for()
    page.keyboard.press("Escape")
    wait_until_closed(page)


def test_two_runs_side_by_side(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["two"].as_uri())
    assert page.locator(".strip .pair").count() == 2
    page.select_option("#gallery-filters [name=run]", label="python:n")
    assert all("python:n" in text for text in page.locator("#cards .card").all_text_contents())
    page.locator("#cards .card-open").first.click()
    page.get_by_role("link", name="python:m, guided").click()
    page.wait_for_function("() => document.querySelector('.detail-id').textContent.includes('python:m')")
    page.keyboard.press("Escape")
    wait_until_closed(page)
    page.get_by_role("navigation", name="Pages of this report").get_by_role("link", name="python:n").click()
    page.wait_for_url("**/run-2.html")
    assert "python:n" in page.text_content("h1")


def test_a_painted_sets_gallery_filters_by_factor_and_model(page: Any, painted_report: Path) -> None:
    page.goto(painted_report.as_uri())
    page.select_option("[name=factor]", "background")
    page.select_option("[name=model]", "fake:unseen")
    page.select_option("[name=outcome]", "fooled")
    found = page.locator("#cards .card").all_text_contents()
    assert found and all("background: forest" in text and "fake:unseen says" in text for text in found)
    page.click("#gallery-reset")
    page.select_option("[name=outcome]", "rejected")
    page.locator("#cards .card-open").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("made from").wait_for()
    assert dialog.locator(".why").text_content().startswith("Rejected: ")


def test_a_boards_rows_lead_to_reports_and_specifications(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["board"].as_uri())
    rows = page.locator("table.sortable, section > .table-block table").first.locator("tbody tr")
    assert {text.split()[0] for text in rows.locator("th").all_text_contents()} == {"python:m", "python:n"}
    page.get_by_role("link", name="report").first.click()
    page.wait_for_url("**/reports/**/index.html")


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
