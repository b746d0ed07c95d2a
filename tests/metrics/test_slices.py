"""Named slices of failures, tables of predictions, and models by tests in one table."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from counterfoil.core.errors import BadData, UsageError
from counterfoil.metrics.comparison import BoardTest, scoreboard
from counterfoil.metrics.observations import Observations
from counterfoil.metrics.prediction_files import MEASURES, read_predictions
from counterfoil.metrics.slices import read_slices, slices, table_of
from counterfoil.metrics.tables import Column, as_csv, as_text, cell_text
from tests.cli.stored import call, store_run

ACCURACY = MEASURES["accuracy"]


def observations(seed: int = 0, *, night: float = 0.3, count: int = 400) -> Observations:
    """A model that is right on 80 % of the images by day, and on fewer by night."""
    draw = np.random.default_rng(seed)
    light = np.where(np.arange(count) % 4 == 0, "night", "day").astype(object)
    place = np.where(draw.random(count) < 0.5, "road", "field").astype(object)
    right = draw.random(count) < np.where(light == "night", night, 0.8)
    columns = {"answered": np.ones(count, dtype=bool), "right": right}
    return Observations("m", np.arange(count, dtype=np.uint64), columns, {"light": light, "place": place}, seed=seed)


def test_the_slice_where_a_model_fails_is_first_and_significant() -> None:
    found = slices(observations(), ACCURACY)
    assert found[0].name == "light=night" and found[0].significant(0.05) and found[0].difference.high < -20
    assert {each.name for each in found} == {"light=night", "light=day", "place=road", "place=field"}
    assert not [each for each in found if each.name.startswith("place") and each.significant(0.05)]
    assert "light=night" in "\n".join(as_text(table_of(found, ACCURACY)))


def test_pairs_of_groupings_and_few_images() -> None:
    names = {each.name for each in slices(observations(), ACCURACY, pairs=True)}
    assert "light=night & place=road" in names
    few = observations().take(np.arange(12))  # three nights
    assert not any("night" in each.name for each in slices(few, ACCURACY))
    with pytest.raises(UsageError, match="no grouping 'weather'; there are light, place"):
        slices(observations(), ACCURACY, by=["weather"])


def test_slices_of_one_kind_of_image_keep_their_level() -> None:
    """With no difference between groups, one of four is significant about once in twenty times."""
    found = sum(any(each.significant(0.05) for each in slices(observations(seed, night=0.8), ACCURACY)) for seed in range(100))
    assert found <= 12


def test_slices_of_a_file(tmp_path: Path) -> None:
    write(tmp_path / "p.csv", [(f"i{at}", "a", "a" if at % 5 else "b") for at in range(40)])
    (tmp_path / "s.csv").write_text(
        "image_id,weather\n" + "".join(f"i{at},{'rain' if at % 5 == 0 else 'sun'}\n" for at in range(40))
    )
    rows = read_slices(tmp_path / "s.csv", read_predictions(tmp_path / "p.csv"))
    assert slices(rows, ACCURACY, by=["weather"])[0].name == "weather=rain"
    (tmp_path / "s.csv").write_text("image_id,weather\nx,rain\n")
    with pytest.raises(UsageError, match="none of its 1 image_ids"):
        read_slices(tmp_path / "s.csv", read_predictions(tmp_path / "p.csv"))


def write(path: Path, rows: list[tuple[str, str, str]], head: str = "image_id,label,prediction") -> Path:
    path.write_text(head + "\n" + "".join(",".join(row) + "\n" for row in rows))
    return path


def test_predictions_are_read_from_every_kind_of_file(tmp_path: Path) -> None:
    rows = [(f"i{at}", "cat", "cat" if at % 3 else "dog") for at in range(9)]
    write(tmp_path / "a.csv", rows)
    table = {"id": [row[0] for row in rows], "label": [row[1] for row in rows], "predicted": [row[2] for row in rows]}
    pq.write_table(pa.table(table), tmp_path / "b.parquet")
    samples = [{"doc_id": row[0], "target": row[1], "acc": float(row[1] == row[2])} for row in rows]
    (tmp_path / "c.jsonl").write_text("".join(json.dumps(each) + "\n" for each in samples))
    content = [{"filepath": i, "ground_truth": {"label": a}, "predictions": {"label": b, "confidence": 0.5}} for i, a, b in rows]
    (tmp_path / "d.json").write_text(json.dumps({"samples": content}))
    found = [read_predictions(tmp_path / name) for name in ("a.csv", "b.parquet", "c.jsonl", "d.json")]
    for each in found:
        assert each.estimate(ACCURACY).value == pytest.approx(100 * 6 / 9)
        assert np.array_equal(each.keys, found[0].keys)


def test_predictions_of_one_cluster_go_together(tmp_path: Path) -> None:
    path = write(
        tmp_path / "p.csv", [(f"i{at}", "a", "a", str(at // 4)) for at in range(12)], "image_id,label,prediction,cluster"
    )
    assert read_predictions(path).clusters == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image_id,label\na,b\n", "needs an id"),
        ("image_id,label,prediction\na,b,c\na,b,c\n", "a is there twice"),
        ("image_id,label,prediction\n", "holds no prediction"),
        ("image_id,correct\na,maybe\n", "true, false, 0 or 1 is needed"),
    ],
)
def test_a_file_that_is_no_table_of_predictions_is_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "p.csv").write_text(text)
    with pytest.raises(BadData, match=message) as raised:
        read_predictions(tmp_path / "p.csv")
    assert "\n" not in str(raised.value)


def test_files_are_compared_and_gated_like_runs(tmp_path: Path) -> None:
    good = write(tmp_path / "good.csv", [(f"i{at}", "a", "a" if at % 10 else "b") for at in range(300)])
    poor = write(tmp_path / "poor.csv", [(f"i{at}", "a", "a" if at % 2 else "b") for at in range(300)])
    code, output = call("compare", good, poor)
    assert code == 0 and "good is higher" in output and "McNemar" in output
    assert call("gate", good, "--min", "accuracy=80", "--against", poor)[0] == 0
    code, output = call("gate", poor, "--against", good, "--margin", "2")
    assert code == 1 and "FAIL  accuracy at most 2 points worse" in output
    assert call("gate", poor, "--min", "accuracy.a=80")[0] == 1
    code, output = call("compare", good, poor, "--by", "class")
    assert code == 0
    code, output = call("compare", good, tmp_path / "run")
    assert code == 2


def test_models_by_tests_in_one_table() -> None:
    day, night = BoardTest("1", "accuracy, day", ACCURACY), BoardTest("2", "accuracy, night", ACCURACY)
    found = scoreboard([(day, "m", observations(1)), (day, "n", observations(2)), (night, "m", observations(3, night=0.1))])
    table = found.table()
    (m, first, second), (n, _, missing) = ([cell_text(cell, Column()) for cell in row] for row in table.rows)
    assert (m, n, missing) == ("m", "n", "not run")
    assert first.endswith(", rank 1–2") and "rank" not in second
    assert found.headline() == "m and n are first, or not told apart from the first, in 1 of 1 test."
    assert as_csv(table).splitlines()[2].endswith("not run,,,")


def test_formats_of_a_comparison(tmp_path: Path) -> None:
    runs = [store_run(tmp_path / name, f"python:{name}", kept=kept) for name, kept in (("a", 0.9), ("b", 0.2))]
    assert "| rank | model |" in call("compare", *runs, "--metric", "fmr", "--format", "md")[1]
    assert r"\toprule" in call("compare", *runs, "--metric", "fmr", "--format", "tex")[1]
    assert "rank,model,value" in call("compare", *runs, "--metric", "fmr", "--format", "csv")[1]
    assert call("compare", *runs, "--format", "pdf")[0] == 2
    code, output = call("compare", runs[0], "--by", "class", "--metric", "sa")
    assert code == 0 and "class=" in output
