"""JSON and CSV from outside end in a value or in one line."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from counterfoil.core.errors import BadData
from counterfoil.core.tables import BadJson, parse_json, parse_yaml, read_json, read_rows, read_table, read_text

HOSTILE = {
    "nested": (b"[" * 200_000 + b"]" * 200_000, "nested more than 100 deep"),
    "nested beyond the bound": (b"[" * 101 + b"]" * 101, "nested more than 100 deep"),
    "nested objects": (b'{"a":' * 101 + b"1" + b"}" * 101, "nested more than 100 deep"),
    "a whole number that no float holds": (b"[1" + b"0" * 400 + b"]", "is not finite"),
    "five thousand digits": (b"1" * 5_000, "is not finite"),
    "a float that is infinite": (b"[1e400]", "is not finite"),
    "infinity by name": (b"[-Infinity]", "is not finite"),
    "not a number": (b"NaN", "is not finite"),
    "half a surrogate pair": (rb'{"text": "\ud800"}', "not UTF-8"),
    "latin-1": ('"é"'.encode("latin-1"), "not UTF-8"),
    "UTF-16": ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
    "half a surrogate pair in a text": ('"\ud800"', "not UTF-8"),
    "cut short": (b'{"a": [1, 2', "not JSON"),
    "nothing": (b"", "not JSON"),
    "two values": (b"1 2", "not JSON"),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_json_is_one_line(case: str) -> None:
    content, problem = HOSTILE[case]
    with pytest.raises(BadJson, match=problem) as caught:
        parse_json(content, what="answer")
    message = str(caught.value)
    assert message.startswith("answer: ") and "\n" not in message and len(message) < 300
    assert isinstance(caught.value, BadData) and isinstance(caught.value, ValueError)


def test_json_is_read_as_it_is_written() -> None:
    text = r'{"a": [1, -2.5, true, null, "\ud83d\ude00 é", 18446744073709551615, 1e3]}'
    assert parse_json(text, what="x") == parse_json(b"\xef\xbb\xbf" + text.encode(), what="x")
    assert parse_json(text, what="x") == {"a": [1, -2.5, True, None, "😀 é", 2**64 - 1, 1000.0]}


def test_whole_numbers_beyond_64_bits_become_floats() -> None:
    value = parse_json("[18446744073709551616, 100000000000000000000000]", what="x")
    assert value == [2.0**64, 1e23] and all(isinstance(each, float) for each in value)


def test_brackets_in_texts_do_not_count_as_depth() -> None:
    assert parse_json('["' + "[{" * 500 + '"]', what="x") == ["[{" * 500]
    assert len(parse_json("[" + ",".join("[[]]" * 1 for _ in range(500)) + "]", what="x")) == 500


def test_json_has_a_largest_size() -> None:
    with pytest.raises(BadJson, match=r"12 bytes of JSON; 10"):
        parse_json('"0123456789"', what="x", limit=10)


def test_files_that_are_none_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "large.json").write_bytes(b" " * 1_000)
    for path, problem in (
        (tmp_path / "fifo", "not a regular file"),
        (Path("/dev/zero"), "not a regular file"),
        (tmp_path / "none.json", "No such file"),
        (tmp_path, "not a regular file|directory"),
        (tmp_path / "large.json", "more than 100 bytes"),
    ):
        with pytest.raises(BadJson, match=problem):
            read_json(path, limit=100)
        if path.name != "large.json":
            with pytest.raises(BadData, match=problem):
                list(read_rows(path, what="rows"))


def test_tables_are_read_by_their_headings(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(b'\xef\xbb\xbfname, answer \r\n dog ,yes\r\n\r\n"a, b",\r\n"two\nlines",no\r\ncat\r\n')
    assert list(read_table(path, ["answer"], what="answers")) == [
        (2, {"name": "dog", "answer": "yes"}),
        (4, {"name": "a, b", "answer": ""}),
        (6, {"name": "two\nlines", "answer": "no"}),
        (7, {"name": "cat", "answer": ""}),
    ]
    with pytest.raises(BadData, match="no column 'vote'; answers have the columns vote"):
        list(read_table(path, ["vote"], what="answers"))


@pytest.mark.parametrize("content", [b"a,b\n\xff\xfe,1\n", b"a,b\n\x00,1\n" + b"x" * 200_000, b"a,b\n" + b"x" * 200_000])
def test_what_is_no_table_is_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "table.csv"
    path.write_bytes(content)
    with pytest.raises(BadData, match="not a CSV file"):
        list(read_table(path, what="rows"))


@pytest.mark.parametrize(
    "text",
    [
        "[" * 5_000,
        "[" * 101 + "]" * 101,
        "&a [*a]",
        "{a: [",
        "1: 2\n  3: 4",
        "9" * 5_000,
        "a: 2026-99-99",
        "\x00",
        "!!python/none",
    ],
)
def test_hostile_yaml_is_one_line(text: str) -> None:
    with pytest.raises(BadData, match="words: not YAML") as caught:
        parse_yaml(text, what="words")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300


def test_yaml_that_shares_its_parts_is_read_at_once() -> None:
    lines = ["a0: &a0 [x]", *(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 30))]
    assert len(parse_yaml("\n".join(lines), what="x")) == 30


def test_a_text_is_utf8(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9")
    with pytest.raises(BadData, match=r"a.txt: cannot be read \(not a text in UTF-8\)"):
        read_text(tmp_path / "a.txt")
    with pytest.raises(BadData, match="not a regular file"):
        read_text(Path("/dev/zero"))
