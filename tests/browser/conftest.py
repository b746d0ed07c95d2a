"""A real Chromium for the pages, one for all tests here; where there is none, the tests are skipped with the line that helps."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from counterfoil.core.records import Prediction
from counterfoil.protocols.reading import write_board, write_report
from counterfoil.store import open_run
from tests.report.made import Plan, build, replace_results

HOW = "no Chromium here; 'apt-get install chromium' (Debian) and these tests run"
NASTY = "<script>document.title='owned'</script>"
OTHER = "python:other"


def chromium() -> str | None:
    """Find a Chromium."""
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium, without a window."""
    playwright = pytest.importorskip("playwright.sync_api", reason="no playwright here; pip install 'counterfoil[test]'")
    path = chromium()
    if path is None:
        pytest.skip(HOW)
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def page(browser: Any) -> Iterator[Any]:
    """A page at desk width that fails the test if a script fails, or if the page asks for anything outside the disk."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    found = context.new_page()
    found.set_default_timeout(30_000)
    problems: list[str] = []
    found.on("pageerror", lambda error: problems.append(str(error)))
    found.on("console", lambda said: problems.append(said.text) if said.type == "error" else None)
    found.on("request", lambda request: problems.append(request.url) if not request.url.startswith("file:") else None)
    yield found
    context.close()
    assert problems == []


@pytest.fixture(scope="session")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports and a board, by name: of runs as they should be, and of runs that are not."""
    folder = tmp_path_factory.mktemp("browser")
    one = build(folder / "one", Plan(images=60))
    one.append(
        predictions=[
            Prediction(each.trial_id, each.picture, OTHER, each.predicted, True, 0.5, 0.5)
            for each in one.predictions()
            if each.picture == "made"
        ]
    )
    two = build(folder / "two", Plan(images=60, model="python:n"))
    nasty = build(folder / "nasty", Plan(classes=(NASTY, "<img src=x onerror=alert(1)>", "b"), prefix=NASTY, images=12))
    names = [f"{'ζωή-😀-非常に長い名前' * 8}{number}" for number in range(1000)]
    long = build(folder / "long", Plan(classes=names, images=8))
    replace_results(long, per_class=dict.fromkeys(names, (long.results or {})["per_class"][names[0]]))
    none = build(folder / "none", Plan(accept=False, images=8))
    half = build(folder / "half", Plan(finish=False, images=8))
    wordy = build(
        folder / "wordy", Plan(model=f"timm:{'vit_large_patch14_' * 4}", classes=[f"{'long ' * 12}{n}" for n in "abc"], images=8)
    )
    return {
        "long": write_report([long], folder / "report-long"),
        "none": write_report([none], folder / "report-none"),
        "half": write_report([half], folder / "report-half"),
        "wordy": write_report([wordy, half], folder / "report-wordy"),
        "one": write_report([open_run(one.path)], folder / "report-one"),
        "two": write_report([open_run(one.path), two], folder / "report-two"),
        "nasty": write_report([nasty], folder / "report-nasty"),
        "board": write_board([one.path, two.path], folder / "board", images=4),
    }
