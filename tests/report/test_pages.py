"""Pages of every protocol: what stands first, and that a run that came to little still has one."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from counterfoil import protocols
from counterfoil.cli.app import app
from counterfoil.core.errors import UsageError
from counterfoil.core.records import Estimate
from counterfoil.metrics.tables import Column, Link, Mark, Table
from counterfoil.protocols.fmr.wording import cautions_of
from counterfoil.protocols.reading import open_run, write_report
from counterfoil.report import html
from counterfoil.report.images import CELL
from counterfoil.report.page import Lines, Page, PageSection, Series
from counterfoil.store import Run
from tests.cli.stored import store_run
from tests.protocols.imagenet_d import world as squares
from tests.protocols.lance import world as pets

from .made import Plan, build, image_id
from .pages import Document, fingerprint, read


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("pages")
    return {
        "fmr": build(folder / "fmr"),
        "lance": protocols.run(pets.spec(), folder / "lance", given=pets.make_parts()),
        "imagenet-d": protocols.run(squares.spec(), folder / "imagenet-d", given=squares.make_parts()),
    }


@pytest.mark.parametrize("name", ["fmr", "lance", "imagenet-d"])
def test_headline_pairs_and_key_numbers_stand_before_any_other_table(runs: dict[str, Run], tmp_path: Path, name: str) -> None:
    folder = write_report([runs[name]], tmp_path / "report").parent
    pages = [read(path) for path in sorted(folder.glob("*.html"))]
    for page in pages:
        order = [element for element in page.elements if element.name in ("h1", "h2", "img", "table")]
        assert order[0].name == "h1" and len(order[0].text) > 20
        before = [element.name for element in order[: next(at for at, each in enumerate(order) if each.name == "h2")]]
        assert before.count("table") == 1 and before.index("img") < before.index("table")
        assert 1 <= before.count("img") <= 12  # six pairs
        titles = [element.text for element in page.all("h2")]
        assert "Downloads" in titles and "How it was made" in titles and "Gallery" in titles
    assert "Where it fails" in [element.text for element in pages[-1].all("h2")]


@pytest.mark.parametrize("name", ["fmr", "lance", "imagenet-d"])
def test_a_run_that_is_not_finished_has_a_page_that_says_so(runs: dict[str, Run], tmp_path: Path, name: str) -> None:
    shutil.copytree(runs[name].path, tmp_path / "run")
    (tmp_path / "run" / "results.json").unlink()
    page = read(write_report([open_run(tmp_path / "run")], tmp_path / "report"))
    assert "No result" in page.words and "not finished" in page.words
    assert "All numbers" not in page.words


def test_two_runs_of_a_protocol_have_a_comparison_first(runs: dict[str, Run], tmp_path: Path) -> None:
    other = build(tmp_path / "other", Plan(model="python:n"))
    folder = write_report([runs["fmr"], other], tmp_path / "report").parent
    page = read(folder / "index.html")
    assert "2 runs compared" in page.words and "Models side by side" in page.words
    assert {path.name for path in folder.glob("*.html")} == {"index.html", "run-1.html", "run-2.html"}
    captions = [image.attributes["alt"] for image in page.all("img")]
    first, second, *_ = [caption for caption in captions if caption.startswith("source image")]
    assert first == second  # the page opens with one image for both models


def test_runs_of_several_protocols_open_with_models_by_tests(runs: dict[str, Run], tmp_path: Path) -> None:
    page = read(folder := write_report(list(runs.values()), tmp_path / "report"))
    assert "3 runs of 3 protocols" in page.words and "not run" in page.words
    assert [element.text for element in page.all("h2")] == ["Models by tests"]
    links = {link.attributes["href"] for link in page.all("a")} - {"#main"}
    assert len(links) >= 4 and all((folder.parent / link.partition("#")[0]).is_file() for link in links)
    assert any(row.startswith("python:m") for row in page.rows)


def test_slices_stand_with_their_p_value_and_the_image_pairs_of_the_worst(tmp_path: Path) -> None:
    page = read(write_report([build(tmp_path / "run", Plan(images=120, classes=tuple("abcd")))], tmp_path / "report"))
    rows = [row for row in page.rows if row.startswith("class=")]
    assert len(rows) == 4 and rows[0].startswith("class=d ") and "−" in rows[0] and rows[0].endswith("< 0.001")
    assert "corrected for 4 slices (Holm)" in page.words
    (worst,) = (element for element in page.all("h3") if element.text == "class=d")
    after = page.elements[page.elements.index(worst) :]
    assert next(element for element in after if element.name == "img").attributes["alt"] == "source image of d"


def test_slices_of_a_file_stand_among_the_others(tmp_path: Path) -> None:
    run = build(tmp_path / "run", Plan(images=120, classes=tuple("abcd")))
    file, out = tmp_path / "weather.csv", tmp_path / "report"
    rows = [f"{image_id(Plan(), number)},{'rain' if number % 2 else 'sun'}" for number in range(120)]
    file.write_text("\n".join(["image_id,weather", *rows]))
    command = ["report", str(run.path), "--out", str(out), "--slices", str(file)]
    assert CliRunner().invoke(app, command).exit_code == 0
    page = read(out / "index.html")
    assert {row.split()[0] for row in page.rows if row.startswith(("class=", "weather="))} >= {"weather=rain", "weather=sun"}
    assert "corrected for 6 slices (Holm)" in page.words  # with four classes
    assert any(element.text.startswith("weather=") for element in page.all("h3"))  # with image pairs below
    before = fingerprint(out)
    file.write_text("image_id,weather\nelsewhere.png,sun\n")
    with pytest.raises(UsageError, match="none of its 1 image_ids is one of the run's"):
        write_report([run], out, slices=file)
    assert fingerprint(out) == before


def test_a_comparison_shows_the_same_sources_for_every_model_and_as_one_image(pair: Path) -> None:
    text = (pair / "index.html").read_text(encoding="utf-8")
    section = text[text.index("The same image, each model") :]
    section = section[: section.index("</section>")]
    assert section.count("the oracle sees") >= 2 and 'href="images/figure-fmr.png"' in section
    with Image.open(pair / "images" / "figure-fmr.png") as figure:
        figure.load()
        assert figure.width > 3 * CELL and len(figure.getcolors(maxcolors=100_000) or []) > 10


def test_the_comparisons_headline_says_who_keeps_more_and_who_less(tmp_path: Path) -> None:
    """ "Keeps most of its accuracy (40 %)" was printed of the best of two."""
    runs = [open_run(store_run(tmp_path / name, f"python:{name}", kept=kept)) for name, kept in (("low", 0.05), ("high", 0.4))]
    words = read(write_report(runs, tmp_path / "report")).words
    assert re.search(r"high keeps the most accuracy \(\d\d % by matched FMR\), \S*low the least \(\d+ %\)\.", words)


def test_several_generators_are_told_to_measure_different_things(tmp_path: Path) -> None:
    one = build(tmp_path / "one")
    spec = dict(one.spec) | {"generator": {"name": "transforms:", "options": {}}}
    shutil.copytree(one.path, tmp_path / "two")
    import json

    stored = json.loads((tmp_path / "two" / "run.json").read_text())
    stored["spec"] = spec
    (tmp_path / "two" / "run.json").write_text(json.dumps(stored))
    words = read(write_report([one, open_run(tmp_path / "two")], tmp_path / "report")).words
    assert "Each generator measures something else" in words and "common corruptions" in words


def results(curve: list[float], *, guided: float = 0.0, n: int = 40) -> dict:
    share = lambda value: {"value": value, "low": max(value - 10, 0), "high": min(value + 10, 100), "n": n}  # noqa: E731
    return {
        "SA": share(90), "SA_matched": share(90), "PA": share(curve[-1]), "PA_reconstruction": share(90), "PA_random": share(90),
        "FMR": share(curve[-1]), "FMR_matched": share(curve[-1]), "VR": share(100), "steps": share(5),
        "counts": {"validated": n, "readable": n + 2, "pending": 0},
        "curve": [{"step": at, "guided": share(value), "random": share(90)} for at, value in enumerate(curve)],
        "arms": {"against_random": {**share(guided), "p": 0.4}},
    }  # fmt: skip


def test_accuracy_at_the_floor_is_named_with_the_budget_that_separates_models() -> None:
    texts = [each.text for each in cautions_of(results([90, 60, 40, 0, 0, 0, 0]), classes=10)]
    floor = next(text for text in texts if "can't be told apart" in text and "budget" in text)
    assert "from step 3 of 6" in floor and "A budget of 2" in floor
    assert not any("budget" in text for text in [each.text for each in cautions_of(results([90, 80, 70, 60]), classes=10)])


def test_few_images_are_told_as_what_they_are() -> None:
    texts = [each.text for each in cautions_of(results([90, 80]), classes=10)]
    assert any(text.startswith("40 of 42 images were accepted by the oracle: fewer than 100") for text in texts)


def test_a_search_that_found_nothing_is_told_so_in_words_that_fit_the_number() -> None:
    """Both of "guided steps take only 100.0 points" and "only −1.0 points" were printed."""
    low, high = results([90, 80], guided=0.0), results([90, 80])
    high["arms"]["against_random"] = {"value": 100.0, "low": 80.0, "high": 100.0, "n": 20, "p": 1e-6}
    low["arms"]["against_random"] = {"value": -1.0, "low": -9.0, "high": 7.0, "n": 20, "p": 0.9}
    assert not any("guided" in each.text for each in cautions_of(high, classes=10))
    text = next(each.text for each in cautions_of(low, classes=10) if "guided" in each.text)
    assert "can't be told apart (−1.0 points (−9.0 to 7.0), p = 0.90)" in text and "only" not in text


def draw(table: Table) -> Document:
    page = Document()
    page.feed(str(html.table(table)))
    page.close()
    return page


def test_an_estimate_is_drawn_and_written_in_one_cell() -> None:
    found = Estimate(25.0, 10.0, 45.0, 40)
    page = draw(Table([Column("model", "text"), Column("accuracy", axis=(0, 100))], [["a", found]]))
    (circle,) = page.all("circle")
    whisker = next(line for line in page.all("line") if "whisker" in line.attributes["class"])
    assert (circle.attributes["cx"], whisker.attributes["x1"], whisker.attributes["x2"]) == ("25%", "10%", "45%")
    assert "25.0 10.0 to 45.0" in page.rows[1]


def test_a_cell_without_a_value_says_why() -> None:
    page = draw(Table([Column("x", "text"), Column("y", axis=(0, 100))], [["a", Estimate(None, None, None, 0, "no image")]]))
    assert "– no image" in page.rows[1] and not page.all("circle")


def test_several_marks_and_shades_and_links_are_drawn() -> None:
    one, two = Estimate(10.0, 5.0, 20.0, 9), Estimate(90.0, 80.0, 95.0, 9)
    columns = [Column("who", "text"), Column("both", axis=(0, 100)), Column("heat", shade=(0, 100))]
    row = [Link("<b>", show="class=<b>", badges=("new",)), (Mark("before", two, "random", hollow=True), Mark("after", one)), two]
    page = draw(Table(columns, [row]))
    assert len(page.all("circle")) == 2 and "before 90.0" in page.rows[1] and "after 10.0" in page.rows[1]
    assert any("shade-4" in cell.attributes.get("class", "") for cell in page.all("td"))
    assert page.all("button")[0].attributes["data-show"] == "class=<b>" and not page.all("b")


def test_a_line_chart_says_its_ends_in_words() -> None:
    points = [(float(at), Estimate(100.0 - 10 * at, 80.0 - 10 * at, 100.0, 9)) for at in range(6)]
    text = str(html.lines(Lines("Accuracy", "steps", [Series("guided", points)])))
    assert "guided: 100.0 % (80.0 to 100.0) at 0, 50.0 % (30.0 to 100.0) at 5" in text and "<polygon" in text


def test_a_page_puts_no_more_than_six_pairs_and_key_numbers_first() -> None:
    table = Table([Column("a")], [[1]] * 7)
    with pytest.raises(ValueError, match="at most 6 pairs"):
        Page("t", "e", "h", key_numbers=table, sections=[PageSection("s", [])])


def test_a_narrow_cell_without_an_interval_keeps_the_reason_in_its_title() -> None:
    lone = Estimate(10.0, None, None, 1, "no interval from one source image or prompt alone")
    narrow = html.table(Table([Column("class", "text"), Column("steps")], [["boot", lone]]))
    assert f'title="{lone.note}">no interval<' in narrow
    drawn = html.table(Table([Column("class", "text"), Column("accuracy", axis=(0, 100))], [["boot", lone]]))
    assert f">{lone.note}<" in drawn
