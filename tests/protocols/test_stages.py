"""Stages: resumed, corrected by hand, and independent of how the work was cut up."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from types import SimpleNamespace

import pytest

from counterfoil.core.errors import BadData, BadRun
from counterfoil.core.spec import StagesSpec
from counterfoil.protocols.stages import Stage, Tables, run_stages
from counterfoil.store.stages import Item, Made, StageTable, turned_away


class Step(Stage):
    """A stage out of a list of items and a function."""

    def __init__(self, tables, name, items, work, settings, kept, parallel, follows):
        super().__init__(SimpleNamespace(place=lambda: nullcontext()), tables)
        self.name, self.kept, self.parallel = name, kept, parallel
        self._items, self._work, self._settings, self._follows = items, work, settings, follows

    def items(self):
        return iter(self._items() if callable(self._items) else self._items)

    def work(self, items):
        return self._work(items)

    def decided_by(self):
        return self._settings

    def follows(self, row):
        return self._follows(row)


def map_items(
    folder, name, items, work, *, settings, kept=(), parallel=False, follows=lambda row: {}, until=None, tell=print, **layout
):
    tables = Tables(folder)
    step = Step(tables, name, items, work, settings, kept, parallel, follows)
    run_stages([step], tables, StagesSpec(**layout), until=until, tell=tell)
    return tables[name]


class Shout:
    """Puts words in capitals, and counts what it was asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, items):
        self.asked += [item.id for item in items]
        return [
            turned_away("empty", "there is nothing to shout")
            if not item.inputs["word"]
            else Made({"loud": item.inputs["word"].upper()})
            for item in items
        ]


def words(*given):
    return [Item(f"{index:03d}", {"word": word}, {"label": index}) for index, word in enumerate(given)]


def shout(folder, items, work=None, **layout):
    work = work or Shout()
    table = map_items(folder, "loud", items, work, settings={"voice": 1}, parallel=True, **layout)
    return table, work


def test_every_item_gets_a_row_and_what_is_turned_away_keeps_its_reason(tmp_path):
    table = map_items(tmp_path, "loud", words("a", "", "c"), Shout(), settings={})
    assert [(row.id, row.values.get("loud"), row["label"]) for row in table] == [
        ("000", "A", 0),
        ("001", None, 1),
        ("002", "C", 2),
    ]
    assert [row.id for row in table.passing()] == ["000", "002"]
    assert table.counts() == (2, {"empty": 1})
    assert table.one("001").reason == "there is nothing to shout"


@pytest.mark.parametrize(("batch", "workers"), [(1, 1), (2, 3), (64, 1)])
def test_the_file_is_the_same_bytes_for_any_batch_and_worker_count(tmp_path, batch, workers):
    items = words(*"abcdefghij")
    expected = shout(tmp_path / "one", items)[0].path.read_bytes()
    assert shout(tmp_path / "two", items, batch=batch, workers=workers)[0].path.read_bytes() == expected


def test_what_is_done_is_not_done_again(tmp_path):
    shout(tmp_path, words("a", "b"))
    _, work = shout(tmp_path, words("a", "b", "c"))
    assert work.asked == ["002"]


def test_another_setting_redoes_everything(tmp_path):
    shout(tmp_path, words("a", "b"))
    work = Shout()
    map_items(tmp_path, "loud", words("a", "b"), work, settings={"voice": 2})
    assert work.asked == ["000", "001"]


def test_a_corrected_line_stands_and_exactly_what_depends_on_it_is_redone(tmp_path):
    class Echo:
        def __init__(self):
            self.asked = []

        def __call__(self, items):
            self.asked += [item.id for item in items]
            return [Made({"echo": item.inputs["loud"] * 2}) for item in items]

    def run():
        told, first, second = [], Shout(), Echo()
        loud = map_items(tmp_path, "loud", words("a", "b", "c"), first, settings={}, tell=told.append)
        items = lambda: (Item(row.id, {"loud": row["loud"]}) for row in loud.passing())  # noqa: E731
        return map_items(tmp_path, "echo", items, second, settings={}, tell=told.append), first.asked, second.asked, told

    run()
    path = tmp_path / "stages" / "loud.jsonl"
    path.write_text(path.read_text().replace('"B"', '"Bee"'))
    table, first, second, told = run()
    assert (first, second) == ([], ["001"])
    assert [row["echo"] for row in table] == ["AA", "BeeBee", "CC"]
    assert told == ["loud: 1 lines corrected by hand"]
    assert run()[1:3] == ([], [])


def test_lines_can_be_deleted_added_and_copied(tmp_path):
    def several(items):
        asked.extend(item.id for item in items)
        return [[Made({"text": f"{item.id}-{n}"}, name=f"v{n}") for n in range(2)] for item in items]

    asked: list[str] = []
    items = words("a", "b")
    table = map_items(tmp_path, "many", items, several, settings={})
    lines = [json.loads(line) for line in table.path.read_text().splitlines()]
    assert [line["id"] for line in lines] == ["000#v0", "000#v1", "001#v0", "001#v1"]
    lines[1]["text"] = "corrected"
    lines.append({"of": "001", "text": "added"})
    lines.append({**lines[0], "text": "copied"})
    del lines[2]
    table.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    table = map_items(tmp_path, "many", items, several, settings={})
    assert [row["text"] for row in table] == ["000-0", "corrected", "copied", "001-1", "added"]
    assert [row["label"] for row in table.of("001")] == [1, 1]
    assert len({row.id for row in table}) == 5
    again = map_items(tmp_path, "many", items, several, settings={})
    assert again.path.read_bytes() == table.path.read_bytes()
    assert asked == ["000", "001"]


class Versions:
    """Gives two versions of every word, the second of which fails while `down`."""

    def __init__(self, *, down: bool = False) -> None:
        self.down, self.asked = down, []

    def __call__(self, items):
        self.asked += [item.id for item in items]
        failed = turned_away("endpoint", "down", retry=True)
        return [[Made({"text": item.inputs["word"]}, name="v0"), self._second(item, failed)] for item in items]

    def _second(self, item, failed):
        return replace(failed, name="v1") if self.down else Made({"text": item.inputs["word"] * 2}, name="v1")


def versions(folder, items, work, **options):
    return map_items(folder, "many", items, work, settings={}, **options)


def change_lines(table, *more, **texts):
    """Correct lines of a table by what they say, and add some."""
    lines = [json.loads(line) for line in table.path.read_text().splitlines()]
    lines = [{**line, "text": texts[line["text"]]} if line.get("text") in texts else line for line in lines]
    table.path.write_text("".join(json.dumps(line) + "\n" for line in [*lines, *more]))


def test_what_a_person_corrected_or_added_stands_when_its_item_is_tried_again(tmp_path):
    table = versions(tmp_path, words("a", "b"), Versions(down=True))
    copied = {**json.loads(table.path.read_text().splitlines()[0]), "text": "copied"}
    change_lines(table, {"of": "000", "text": "added"}, copied, a="corrected")
    for second in ([], [], ["aa"]):
        table = versions(tmp_path, words("a", "b"), Versions(down=not second))
        texts = [row["text"] for row in table.of("000") if row.goes_on]
        assert texts[: len(second) + 1] == ["corrected", *second] and sorted(texts[len(second) + 1 :]) == ["added", "copied"]
    work = Versions()
    versions(tmp_path, words("a", "b"), work)
    assert work.asked == []


def test_a_failure_that_a_person_has_mended_is_not_tried_again(tmp_path):
    table = versions(tmp_path, words("a"), Versions(down=True))
    lines = [json.loads(line) for line in table.path.read_text().splitlines()]
    del lines[1]["check"], lines[1]["reason"]  # but not "retry"
    lines[1]["text"] = "mended"
    table.path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    work = Versions()
    assert [row["text"] for row in versions(tmp_path, words("a"), work).passing()] == ["a", "mended"]
    assert work.asked == []


def test_an_added_line_stays_when_its_item_changes_and_a_corrected_one_is_made_anew(tmp_path):
    table = versions(tmp_path, words("a"), Versions())
    copied = {**json.loads(table.path.read_text().splitlines()[0]), "text": "copied"}
    change_lines(table, {"of": "000", "text": "added"}, copied, aa="corrected")
    assert [row["text"] for row in versions(tmp_path, words("a"), Versions())] == ["a", "corrected", "copied", "added"]
    assert [row["text"] for row in versions(tmp_path, words("b"), Versions())] == ["b", "bb", "copied", "added"]


def test_a_line_that_is_there_twice_is_named(tmp_path):
    table, _ = shout(tmp_path, words("a", "b", "c"))
    first, second, third = table.path.read_text().splitlines()
    table.path.write_text("\n".join([first, second, second, third]) + "\n")
    with pytest.raises(BadRun, match=r"loud\.jsonl, line 3: a line that is there twice; delete one of the two"):
        shout(tmp_path, words("a", "b", "c"))
    for other in (second.replace('"B"', '"Bee"'), '{"of": "001", "loud": "Bee"}'):
        table.path.write_text("\n".join([first, second, third, other]) + "\n")
        with pytest.raises(BadRun, match=r"line 4: a second line for '001', which has one result; delete one of the two"):
            shout(tmp_path, words("a", "b", "c"))
    table.path.write_text("\n".join([first, third, second.replace('"B"', '"Bee"')]) + "\n")
    assert [row["loud"] for row in shout(tmp_path, words("a", "b", "c"))[0]] == ["A", "Bee", "C"]


def test_a_line_added_to_nothing_is_named_and_left_where_it_is(tmp_path):
    table = versions(tmp_path, words("a"), Versions())
    change_lines(table, {"of": "0000", "text": "added"})
    before, work = table.path.read_bytes(), Versions()
    with pytest.raises(
        BadRun, match=r"many\.jsonl: a line was added to '0000', which is not there; correct its \"of\", or delete it"
    ):
        versions(tmp_path, words("a", "b"), work)
    assert table.path.read_bytes() == before and work.asked == []


def test_a_person_may_write_the_one_result_of_an_item(tmp_path):
    table, _ = shout(tmp_path, words("a", "b"))
    table.path.write_text('{"id": "001", "loud": "Bee"}\n')
    table, work = shout(tmp_path, words("a", "b"))
    assert [(row.id, row["loud"]) for row in table] == [("000", "A"), ("001", "Bee")]
    assert work.asked == ["000"]
    assert [row["loud"] for row in shout(tmp_path, words("a", "c"))[0]] == ["A", "Bee"]


def test_what_follows_from_a_corrected_value_is_brought_in_line(tmp_path):
    def measure(row):
        return {"length": len(row["text"])}

    table = versions(tmp_path, words("a"), Versions(), follows=measure)
    change_lines(table, {"of": "000", "text": "added", "length": 99}, a="corrected")
    table = versions(tmp_path, words("a"), Versions(), follows=measure)
    assert [row.values.get("length") for row in table] == [9, None, 5]


def test_an_item_tried_again_and_again_has_what_came_last(tmp_path):
    def line(text, **more):
        return {"id": "x", "key": "k", "text": text, "seal": "", **more}

    for text in ("first", "second", "third"):
        StageTable(tmp_path, "ask").commit([line(text)])  # and the stage is killed
    assert [row["text"] for row in StageTable(tmp_path, "ask").find("k", Item("x"))] == ["third"]


def test_a_line_that_is_no_json_is_named(tmp_path):
    table, _ = shout(tmp_path, words("a", "b"))
    table.path.write_text(table.path.read_text().replace('"B"', '"B'))
    for content in (table.path.read_text(), "\n" + '{"id": ' * 100_000):
        table.path.write_text(content)
        with pytest.raises(BadRun, match=r"loud\.jsonl, line 2: not JSON .*; correct or delete it"):
            shout(tmp_path, words("a", "b"))
    table.path.write_text("{}\n")
    with pytest.raises(BadRun, match='line 1: has neither "id" nor "of"'):
        shout(tmp_path, words("a", "b"))


def test_two_items_of_one_id_are_refused(tmp_path):
    with pytest.raises(BadData, match="'x' occurs twice"):
        map_items(tmp_path, "loud", [Item("x"), Item("x")], lambda items: [Made()] * len(items), settings={})


def test_a_failure_that_may_pass_is_tried_again(tmp_path):
    answers = iter([turned_away("endpoint", "down", retry=True), Made({"n": 1})])
    work = lambda items: [next(answers) for _ in items]  # noqa: E731
    assert [row.check for row in map_items(tmp_path, "ask", [Item("x")], work, settings={})] == ["endpoint"]
    table = map_items(tmp_path, "ask", [Item("x")], work, settings={})
    assert [(row.check, row.values) for row in table] == [("", {"n": 1})]


def test_a_result_whose_blob_is_gone_is_made_again(tmp_path):
    held = Tables(tmp_path).files
    work = lambda items: [Made({"files": [held.put(item.id.encode(), ".bin")]}) for item in items]  # noqa: E731
    table = map_items(tmp_path, "files", words("a", "b"), work, settings={}, kept=["files"])
    name = table.one("001")["files"][0]
    held.path(name).unlink()
    map_items(tmp_path, "files", words("a", "b"), work, settings={}, kept=["files"])
    assert held.read(name) == b"001"
    assert held.hash_of(name) == os.path.basename(name).removesuffix(".bin")


def test_a_blob_outside_the_run_is_refused(tmp_path):
    with pytest.raises(BadRun, match="points outside the run"):
        Tables(tmp_path).files.read("../../secret")


def test_a_run_can_stop_after_a_stage(tmp_path):
    later = Step(Tables(tmp_path), "later", words("a"), pytest.fail, {}, (), False, lambda row: {})
    tables = Tables(tmp_path)
    first = Step(tables, "loud", words("a"), Shout(), {}, (), False, lambda row: {})
    assert not run_stages([first, later], tables, StagesSpec(), until="loud")
    assert [row["loud"] for row in StageTable(tmp_path / "stages", "loud")] == ["A"]


def test_a_failure_half_way_keeps_what_was_done(tmp_path):
    def fails(items):
        if items[0].id == "004":
            raise RuntimeError("out of memory")
        return [Made({"loud": "x"}) for _ in items]

    with pytest.raises(RuntimeError):
        map_items(tmp_path, "loud", words(*"abcdef"), fails, settings={"voice": 1}, batch=2)
    assert shout(tmp_path, words(*"abcdef"))[1].asked == ["004", "005"]


KILLED = """
import os, signal, sys
from pathlib import Path
from counterfoil.store.stages import Item, Made
from tests.protocols.test_stages import map_items
def work(items):
    if items[0].id == "006":
        os.kill(os.getpid(), signal.SIGKILL)
    return [Made({"loud": item.inputs["word"].upper()}) for item in items]
items = [Item(f"{index:03d}", {"word": word}, {"label": index}) for index, word in enumerate("abcdefgh")]
map_items(Path(sys.argv[1]), "loud", items, work, settings={"voice": 1}, batch=2)
"""


def test_a_kill_loses_the_batch_in_flight_alone(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    table, work = shout(tmp_path, words(*"abcdefgh"))
    assert work.asked == ["006", "007"]
    assert table.path.read_bytes() == shout(tmp_path / "whole", words(*"abcdefgh"))[0].path.read_bytes()


def test_stages_do_without_torch():
    code = "import sys, counterfoil.store.stages; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_ten_thousand_items_take_seconds(tmp_path):
    items = lambda: (Item(f"{n:05d}", {"word": "w"}) for n in range(10_000))  # noqa: E731
    work = lambda some: [Made({"loud": "W"}) for _ in some]  # noqa: E731
    table = map_items(tmp_path, "loud", items, work, settings={}, batch=500)
    assert sum(1 for _ in table) == 10_000
