"""No vote that was answered with success is lost, however often the server is killed."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from counterfoil.web.database import CastVote, Invited, ReviewItem
from tests.web.postgres import postgres

from .world import World, link_of, start_review, world

KILLS = 15
CLIENTS = 4
VOTES_A_LIFE = 8  # answered before the server is killed


@dataclass
class Load:
    """Reviewers who vote on and on, and remember what the server confirmed."""

    port: int
    key: str
    confirmed: list[list[tuple[int, str]]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def count(self) -> int:
        return sum(map(len, self.confirmed))

    def reviewer(self, number: int, token: str) -> None:
        """One reviewer. A vote without an answer may or may not be kept; it is followed by another about the same image."""
        draw, mine = random.Random(number), self.confirmed[number]
        link: http.client.HTTPConnection | None = None
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        item, sent = 0, 0
        while not self.stop.is_set():
            sent += 1
            mark = f"{number}-{sent}"
            path = "votes" if item else "next"
            body = json.dumps({"item": item, "present": draw.random() < 0.5, "comment": mark} if item else {})
            try:
                link = link or http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
                link.request("POST", f"/review/{self.key}/{path}", body, headers)
                answer = link.getresponse()
                content = json.loads(answer.read())
            except (OSError, http.client.HTTPException):
                link = None
                time.sleep(0.005)
                continue
            if answer.status == 200:
                taken = item and not content["note"]  # an answer that comes after all votes are in is refused in words
                mine += [(item, mark)] if taken else []
                item = content["item"]["id"] if content["item"] else item  # at the end the last one is voted on again and again
            elif answer.status == 422 and "load the page again" in content["error"]:
                item = 0  # the answer was not heard, and the image has gone to others since
            elif answer.status != 503:
                self.refused.append(f"{answer.status} {content}")


def test_killed_fifteen_times_on_sqlite(folder: Path) -> None:
    _kill_and_count(world(folder))


@pytest.mark.xdist_group("postgres")
def test_killed_fifteen_times_on_postgresql(folder: Path) -> None:
    with postgres() as url:
        here = world(folder, database=url)
        try:
            _kill_and_count(here)
        finally:
            here.database.close()


def _kill_and_count(here: World) -> None:
    owner, key = start_review(here, votes=3, known=20)
    tokens = [link_of(owner, key, f"reviewer {number}") for number in range(CLIENTS)]
    here.database.close()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    load = Load(port, key, confirmed=[[] for _ in tokens])
    clients = [threading.Thread(target=load.reviewer, args=each, daemon=True) for each in enumerate(tokens)]
    draw = random.Random(7)
    command = [sys.executable, str(Path(__file__).with_name("forking.py")), str(here.settings.root), str(port)]
    with subprocess.Popen(
        [*command, here.settings.database_url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        assert starter.stdin and starter.stdout
        for client in clients:
            client.start()
        for _ in range(KILLS):
            before = load.count()
            starter.stdin.write("\n")
            starter.stdin.flush()
            server = int(starter.stdout.readline())
            patience = time.monotonic() + 60
            while load.count() < before + VOTES_A_LIFE:
                assert time.monotonic() < patience, f"no votes were taken in; {load.refused[:3]}"
                time.sleep(0.002)
            time.sleep(draw.random() * 0.02)
            os.kill(server, signal.SIGKILL)
        load.stop.set()
        starter.stdin.close()
    for client in clients:
        client.join(timeout=20)
    assert not load.refused, load.refused[:3]
    _check(here, load)


def _check(here: World, load: Load) -> None:
    """Every confirmed vote is there once and on its image, one vote stands per reviewer and image, and the counts are right."""
    with here.database.reading() as db:
        votes, items, reviewers = (db.query(table).all() for table in (CastVote, ReviewItem, Invited))
    kept = {vote.comment: vote.item_id for vote in votes}
    assert len(kept) == len(votes)
    confirmed = [each for mine in load.confirmed for each in mine]
    assert len(confirmed) >= KILLS * VOTES_A_LIFE
    lost = [mark for item, mark in confirmed if kept.get(mark) != item]
    assert not lost, f"{len(lost)} of {len(confirmed)} confirmed votes are lost"
    standing = Counter((vote.reviewer_id, vote.item_id) for vote in votes if vote.withdrawn is None)
    assert max(standing.values()) == 1
    trusted = {reviewer.id for reviewer in reviewers if reviewer.trusted}
    counted = Counter(item for reviewer, item in standing if reviewer in trusted)
    assert all(item.votes == counted[item.id] for item in items if item.expected is None)
