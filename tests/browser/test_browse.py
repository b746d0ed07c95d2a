"""The gallery of a set that was painted from words: filters by factor and by model, and the words of one picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from counterfoil import protocols
from counterfoil.protocols.reading import write_report
from tests.protocols.imagenet_d.world import given, spec
from tests.protocols.lance import world

from .checks import problems

pytestmark = pytest.mark.xdist_group("browser")


@pytest.fixture(scope="module")
def gallery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("painted")
    run = protocols.run(spec(), folder / "run", given=given())
    return write_report([run], folder / "report").with_name("gallery.html")


@pytest.fixture(scope="module")
def edited(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("edited")
    run = protocols.run(world.spec(), folder / "run", given=world.given())
    return write_report([run], folder / "report").with_name("gallery.html")


@pytest.mark.parametrize("name", ["gallery", "edited"])
def test_from_the_report_to_its_pictures(page: Any, name: str, request: pytest.FixtureRequest) -> None:
    page.goto(request.getfixturevalue(name).with_name("index.html").as_uri())
    assert problems(page) == []
    page.get_by_role("link", name="All pictures, with filters").click()
    page.locator("#cards .card").first.wait_for()
    assert problems(page) == []


def test_filters_by_factor_and_model(page: Any, gallery: Path) -> None:
    page.goto(gallery.as_uri())
    page.select_option("[name=factor]", "texture")
    assert all("texture: " in text for text in page.locator("#cards .card").all_text_contents())
    page.select_option("[name=factor]", "background")
    page.select_option("[name=model]", "fake:unseen")
    page.select_option("[name=outcome]", "fooled")
    found = page.locator("#cards .card").all_text_contents()
    assert found
    assert all("background: forest" in text and "fake:unseen says" in text for text in found)
    page.select_option("[name=model]", "fake:good")
    assert page.locator("#cards").text_content() == "No image fits these filters."


def test_one_picture_tells_its_words_and_why_it_was_turned_away(page: Any, gallery: Path) -> None:
    page.goto(gallery.as_uri())
    page.select_option("[name=outcome]", "rejected")
    page.locator("#cards .card-open").first.click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_text("made from").wait_for()
    assert dialog.locator(".why").text_content().startswith("Rejected: ")
    assert "a photo of a" in dialog.text_content()
    assert problems(page) == []
