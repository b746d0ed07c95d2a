"""`counterfoil review` and `counterfoil serve` as people type them."""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from counterfoil.cli.app import app
from counterfoil.core.errors import CounterfoilError
from counterfoil.store import open_run
from counterfoil.web import app as serving
from counterfoil.web.database import Review

from .world import Person, world


def _call(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(each) for each in arguments])
    if isinstance(result.exception, CounterfoilError):
        return f"{result.exception.exit_code}: {result.exception}"
    assert result.exit_code == 0, result.output
    return str(result.output)


def test_a_review_goes_out_comes_back_and_becomes_verdicts(folder: Path, tmp_path: Path) -> None:
    tasks = tmp_path / "tasks.json"
    assert "18 tasks in" in _call("review", folder / "one", "--votes", 1, "--known-answers", 0, "--export", tasks)
    assert "<View>" in tasks.with_suffix(".xml").read_text(encoding="utf-8")
    content = json.loads(tasks.read_text(encoding="utf-8"))
    for number, task in enumerate(content):
        word = "no" if number < 5 else "yes"
        result = [{"from_name": "present", "type": "choices", "value": {"choices": [word]}}]
        task["annotations"] = [{"completed_by": {"email": "ada@example.org"}, "result": result}]
    content[0]["annotations"].append({"completed_by": 3, "result": []})
    tasks.write_text(json.dumps(content), encoding="utf-8")
    said = _call("review", folder / "one", "--import", tasks)
    assert "18 votes by 1 reviewers entered" in said and "left out, 1: an annotation that does not say" in said
    said = _call("review", folder / "one", "--verdicts")
    assert "13 images kept, 5 rejected, 0 undecided; verdicts of oracle human" in said and "oracle human" in said
    assert sum(bool(verdict.keeps_label) for verdict in open_run(folder / "one").verdicts("human")) == 13


def test_known_answers_can_come_from_a_file(folder: Path, tmp_path: Path) -> None:
    known = tmp_path / "known.csv"
    known.write_text(
        "trial_id,picture,class,answer\nimg 0.png#guided,made,ant,yes\nimg 1.png#guided,made,cat,no\n", encoding="utf-8"
    )
    # The first is one of the 18 and now a known answer instead, the second asks about another class.
    assert "19 tasks" in _call("review", folder / "one", "--known", known, "--export", tmp_path / "tasks.json")
    for content, says in (
        ("a,b\n1,2\n", "no column 'trial_id'"),
        ("trial_id,picture,class,answer\nnobody,made,ant,yes\n", "line 2: the run has no image"),
        ("trial_id,picture,class,answer\nimg 0.png#guided,made,elk,yes\n", "line 2: give one of the run's classes"),
    ):
        known.write_text(content, encoding="utf-8")
        assert says in _call("review", folder / "one", "--new", "--known", known, "--export", tmp_path / "tasks.json")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["review", "nothing"], "2: nothing: not a run directory"),
        (["review", "RUN", "--votes", "0"], "2: votes of a review: 0 is out of range; give 1 to 99"),
        (["review", "RUN", "--known-answers", "0.9"], "2: known answers of a review: 0.9 is out"),
        (["review", "RUN", "--limit", "0"], "2: limit of a review: 0 is out of range; give 1 or more"),
        (["review", "RUN", "--import", "nothing.json"], "2: nothing.json: cannot be read"),
        (["review", "RUN", "--export", "no/where.json"], "2: no/where.json: tasks cannot be written"),
        (["review", "RUN", "--database", "oracle://x"], "only sqlite"),
        (["serve", "nothing"], "nothing: no such folder"),
        (["serve", "x" * 5000], "File name too long"),
        (["serve", __file__], "test_commands.py: not a folder"),
        (["serve", "RUN", "--port", "99999"], "a port is a number"),
        (["serve", "RUN", "--token-file", "nothing"], "nothing: holds no token"),
        (["serve", "RUN", "--host", "192.0.2.1", "--port", "0"], "cannot listen there"),
    ],
)
def test_wrong_use_is_told_in_one_line(folder: Path, arguments: list[str], says: str) -> None:
    said = _call(*(str(folder / "one") if each == "RUN" else each for each in arguments))
    assert says in said and said.startswith("2: ") and "\n" not in said


@pytest.mark.parametrize(
    ("options", "wanted", "says"),
    [
        (["--reviewer", "Ada", "--reviewer", "Ben"], 2, ""),
        (["--reviewer", "Ada", "--reviewer", "Ben", "--votes", "3"], 3, "an image needs 3 votes to be decided; invite 1 more"),
        ([], 3, "invite 3 more"),
    ],
)
def test_two_reviewers_can_decide_and_too_few_are_told(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], wanted: int, says: str
) -> None:
    monkeypatch.setattr(serving, "serve", lambda settings, told, log: told(settings))
    said = _call("review", folder / "one", *options)
    assert says in said and ("Note: " in said) == bool(says)
    tokens = re.findall(r"enter#(\S+)", said)
    here = world(folder)
    with here.database.reading() as db:
        review = db.query(Review).one()
    assert review.votes_wanted == wanted and len(tokens) == len(options) // 2 - ("--votes" in options)
    for token in tokens:
        turn = Person(here.enter(token), review.key).next()
        while turn["item"]:
            turn = Person(here.enter(token), review.key).vote(turn["item"]["id"], present=True)
    assert here.summary(review.key).kept == (18 if wanted == len(tokens) else 0)
    here.database.close()


def test_a_review_that_exists_keeps_its_votes_per_image_and_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "serve", lambda settings, told, log: told(settings))
    _call("review", folder / "one", "--votes", 1, "--reviewer", "Ada")
    assert "this review exists and wants 1 votes per image; --new begins another" in _call("review", folder / "one", "--votes", 2)


def test_reachable_from_elsewhere_it_makes_a_token_and_keeps_it_to_itself(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "counterfoil", "review", str(folder / "one"), "--host", "0.0.0.0"]
    command += ["--port", str(port), "--reviewer", "Ada", "--reviewer", "Ben", "--log"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout and server.stderr
        lines = [server.stdout.readline() for _ in range(4)]
        token = (folder / ".counterfoil" / "token").read_text(encoding="utf-8").strip()
        assert (folder / ".counterfoil" / "token").stat().st_mode & 0o077 == 0
        links = [re.fullmatch(rf"(Ada|Ben): http://localhost:{port}/enter#(\S+)\n", line) for line in lines[2:]]
        invited = [link.group(2) for link in links if link]
        assert len(invited) == 2 and token not in "".join(lines)
        assert _status(port, "/progress/one") == 401
        assert _status(port, "/progress/one", token) == 200
        assert [_status(port, "/progress/one", each) for each in (*invited, "x")] == [403, 403, 401]
        server.terminate()
        written = server.stderr.read()
    assert "GET '/progress/one' 200" in written
    assert not any(secret in written for secret in (token, *invited))


def _status(port: int, path: str, token: str = "") -> int:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    link.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
    return link.getresponse().status
