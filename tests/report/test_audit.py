"""The oracle's audit stands in every report: how far its word goes, and the bounds that its rejections leave."""

from __future__ import annotations

from pathlib import Path

from counterfoil.protocols.reading import write_report
from counterfoil.report import audit
from counterfoil.store import Run

from .made import Plan, build
from .pages import read


def test_every_number_of_the_audit_stands_there(run: Run, report: Path) -> None:
    page = read(report / "index.html")
    assert run.results is not None
    for key in audit.TITLES:
        found = run.results["audit"][key]
        row = f"{key} {found['value']:.1f} % {found['low']:.1f} to {found['high']:.1f} {found['n']} "
        assert any(row in each for each in page.rows), key
    low, high = (run.results["audit"][key]["value"] for key in ("FMR_lost", "FMR_kept"))
    assert f"with them it would lie between {low:.1f} and {high:.1f}" in page.words


def test_classes_have_the_oracles_accuracy(run: Run, report: Path) -> None:
    assert run.results is not None
    found = run.results["audit"]["per_class"]["ant"]["clean_accuracy"]
    row = next(row for row in read(report / "index.html").rows if row.startswith("ant show pictures"))
    assert row.endswith(f"{found['value']:.1f} {found['low']:.1f} to {found['high']:.1f}")


def test_side_by_side_a_row_a_run(pair: Path) -> None:
    rows = read(pair / "index.html").rows
    assert (
        sum(row.startswith("python:m 100.0") for row in rows) == 1
    )  # beside its row among the numbers, which begins with a rank


def test_a_run_without_an_audit_has_no_such_section(tmp_path: Path) -> None:
    run = build(tmp_path / "run", Plan(images=6))
    results = {key: value for key, value in (run.results or {}).items() if key != "audit"}
    assert audit.lines(results) == []
    assert audit.bounds(results, name="b") is None
    assert audit.summary(results) == ""


def test_nothing_lost_is_said_in_words(tmp_path: Path) -> None:
    run = build(tmp_path / "run", Plan(images=4))  # image 4 would be the first that the oracle rejects
    page = read(write_report([run], tmp_path / "report"))
    assert "It turned no image away, so no result is hidden." in page.words
    assert "chart-bounds" not in {figure.attributes["id"] for figure in page.all("figure")}
