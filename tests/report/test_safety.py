"""Nothing a run holds can become markup or script, and nothing in a report leads outside it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from counterfoil.protocols.reading import write_report

from .made import Plan, build
from .pages import data, read

NASTY = "<script>alert(1)</script>"
BREAKOUT = "\"'><img src=x onerror=alert(2)>"
COMMENT = "]]></style>--><b>&amp;{{ 7*7 }}\u202egnp"


@pytest.fixture(scope="module")
def nasty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nasty")
    plan = Plan(
        model=f"python:{NASTY}",
        classes=(NASTY, BREAKOUT, COMMENT),
        prefix=f"{BREAKOUT}/{NASTY}",
        skip_reason=f"{NASTY} {BREAKOUT}",
    )
    other = Plan(model=f"python:{BREAKOUT}", classes=plan.classes, prefix=plan.prefix)
    return write_report([build(folder / "one", plan), build(folder / "two", other)], folder / "report").parent


PAGES = ("index.html", "run-1.html", "run-2.html")
ALL = PAGES


@pytest.mark.parametrize("name", PAGES)
def test_text_from_a_run_stays_text(nasty: Path, name: str) -> None:
    page = read(nasty / name)
    for element in page.elements:
        assert element.name not in ("b", "style", "iframe", "object", "embed")
        assert not [key for key in element.attributes if key.startswith("on")]
    assert all(image.attributes["src"].startswith(("images/", "thumbs/")) for image in page.all("img"))
    assert all(script.attributes.get("src") and not script.text.strip() for script in page.all("script"))
    assert NASTY in page.words
    assert "{{ 7*7 }}" in page.words


@pytest.mark.parametrize("name", ALL)
def test_no_inline_style_and_a_policy_that_forbids_inline_script(nasty: Path, name: str) -> None:
    page = read(nasty / name)
    assert not [element for element in page.elements if "style" in element.attributes]
    policy = next(
        meta.attributes["content"] for meta in page.all("meta") if meta.attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy


def test_data_scripts_are_one_call_with_json_in_ascii(nasty: Path) -> None:
    for script in (nasty / "data").glob("*.js"):
        text = script.read_text(encoding="ascii")
        assert re.match(r"counterfoil\.(name|add|history)\(\{", text)
        data(script)
    assert data(nasty / "data/run-1.js")["classes"] == [NASTY, BREAKOUT, COMMENT]


def test_scripts_never_parse_markup() -> None:
    import counterfoil.report

    for script in (Path(counterfoil.report.__file__).parent / "static").glob("*.js"):
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", script.read_text())


def test_links_resolve_inside_the_folder(nasty: Path) -> None:
    for name in ALL:
        page = read(nasty / name)
        ids = [element.attributes["id"] for element in page.elements if "id" in element.attributes]
        assert len(ids) == len(set(ids))
        for element in page.elements:
            for key in ("href", "src"):
                target = element.attributes.get(key)
                if target is None:
                    continue
                if target.startswith("#image="):
                    continue  # an entry of the gallery
                if target.startswith("#"):
                    assert target[1:] in ids
                else:
                    assert (nasty / target).resolve().is_relative_to(nasty.resolve())
                    assert (nasty / target).is_file(), target
            for key in ("for", "aria-labelledby", "aria-describedby", "list", "data-for"):
                if key in element.attributes:
                    assert element.attributes[key] in ids
    for number in (1, 2):
        for entry in data(nasty / f"data/gallery-{number}.js")["entries"]:
            assert all((nasty / path).is_file() for paths in entry["images"].values() for path in paths)


def test_nothing_is_loaded_from_a_network(nasty: Path) -> None:
    for path in nasty.rglob("*"):
        if path.suffix in (".html", ".css", ".js"):
            text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")  # a name, not an address
            assert not re.search(r"https?://|url\(|@import|\bfetch\(|XMLHttpRequest", text), path.name


def test_controls_have_names(report: Path) -> None:
    page = read(report / "index.html")
    assert all(
        button.text.strip() or "aria-label" in button.attributes for button in page.all("button") if button.name == "button"
    )
    labels = page.all("label")
    assert len(labels) == len(page.all("select")) + len(page.all("input"))
    assert all(label.text.strip() for label in labels)
    assert read(report / "index.html").all("html")[0].attributes["lang"] == "en"
