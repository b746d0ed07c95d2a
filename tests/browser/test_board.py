"""The board in a browser: sort, filter, follow a row to its report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.xdist_group("browser")


def models(page: Any) -> list[str]:
    return [text.split()[0] for text in page.locator("table.board tbody tr:visible th").all_text_contents()]


def test_rows_sort_by_any_column(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["board"].as_uri())
    table = page.locator("table.board")
    table.get_by_role("button", name="Model").click()
    assert models(page) == ["python:m", "python:n"]
    table.get_by_role("button", name="Model").press("Enter")
    assert models(page) == ["python:n", "python:m"]
    rank = table.locator("thead th").nth(1)
    rank.get_by_role("button").click()
    assert rank.get_attribute("aria-sort") == "ascending"
    assert table.locator("tbody td").first.text_content() == "1–2"


def test_rows_filter_by_model(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["board"].as_uri())
    page.get_by_label("Model contains").fill("n:N")
    assert models(page) == ["python:n"]
    assert page.locator(".matches").text_content() == "1 of 2 rows"


def test_a_row_leads_to_its_report_and_its_command(page: Any, reports: dict[str, Path]) -> None:
    page.goto(reports["board"].as_uri())
    page.get_by_role("link", name="Command that makes python:n again").click()
    assert "--model python:n" in page.locator(":target").text_content()
    page.get_by_role("link", name="Report of python:n").click()
    page.wait_for_url("**/reports/**/index.html")
    assert page.text_content("h1") == "python:n"
