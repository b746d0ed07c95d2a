"""Benchmarks leave files behind that a page can be made of, and plans are worked out from them."""

from __future__ import annotations

from pathlib import Path

import pytest
from bench import plan, results
from bench.page import page


def test_a_page_is_made_of_what_was_kept(tmp_path: Path) -> None:
    rows = [{"way": "one", "images/s": 1.25, "same": True}, {"way": "two | three", "images/s": 12345.6}]
    results.keep("speed", rows, command="python -m bench.speed", about="Two ways.", folder=tmp_path)
    (tmp_path / "loose.json").write_text('{"about": {"device": "H200", "small": false}, "rows": {"engine": {"seconds": 0.5}}}')
    (tmp_path / "bare.json").write_text('{"machine": "H100", "way a": {"s": 2.0}, "way b": {"s": 3.5}}')
    (tmp_path / "other.json").write_text('{"numbers": []}')
    text = page(tmp_path)
    assert "| one | 1.25 | yes |\n| two \\| three | 12,346 |  |" in text
    assert "`python -m bench.speed`, 20" in text and "python 3." in text
    assert "device H200." in text and "| engine | 0.5 |" in text
    assert "machine H100." in text and "| way b | 3.5 |" in text
    assert text.count("\n## ") == 3


def test_a_plan_follows_from_seconds_and_price(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plan, "read", lambda name: None)
    rows, about = plan.plan(0.072, 2.5)
    first = rows[0]
    assert (first["images"], first["GPUs"], first["time"], first["price"]) == (50_000, 1, "60.0 minutes", 2)
    assert {row["GPUs"] for row in rows} == {1, 8, 256} and "0.072 seconds an image" in about
    assert [row["price"] for row in rows[3:6]] == [round(14_197_122 * 0.072 / 3600 * 2.5)] * 3
    with pytest.raises(SystemExit, match="no measured seconds"):
        plan.plan(None, 2.5)


def test_a_plan_takes_the_best_row_of_the_engine_and_the_stores_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {
        "fmr_speed": {
            "about": {"device": "H200"},
            "rows": {
                "loop": {"seconds_an_image": 0.01},
                "engine a": {"seconds_an_image": 0.2},
                "engine b": {"seconds_an_image": 0.1},
            },
        },
        "scale": {"rows": [{"what": "finished images a second through the store", "value": 5120}]},
    }
    monkeypatch.setattr(plan, "read", found.get)
    rows, about = plan.plan(None, 1.0)
    assert about.startswith("0.1 seconds an image and GPU (bench/results/fmr_speed.json, engine b, H200)")
    assert rows[2]["images/s"] == 2560 and rows[2]["of what the store takes, %"] == 50.0
