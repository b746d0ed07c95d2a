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

from counterfoil.web.database import Item, Vote
from tests.web.postgres import postgres

from .world import World, start_review, world

KILLS = 50
CLIENTS = 4
VOTES_A_LIFE = 8  # answered before the server is killed


@dataclass
class Load:
    """Reviewers who vote on and on, and remember what the server confirmed."""

    port: int
    key: str
    items: list[int]
    confirmed: list[list[tuple[int, str]]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    stop: threading.Event = field(default_factory=threading.Event)

    def count(self) -> int:
        return sum(map(len, self.confirmed))

    def reviewer(self, number: int, token: str) -> None:
        """One reviewer. A vote without an answer may or may not be kept; it is not sent again but followed by another."""
        draw, mine = random.Random(number), self.confirmed[number]
        link: http.client.HTTPConnection | None = None
        sent = 0
        while not self.stop.is_set():
            sent += 1
            item, mark = draw.choice(self.items), f"{number}-{sent}"
            body = json.dumps({"item": item, "present": draw.random() < 0.5, "comment": mark})
            try:
                link = link or http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
                headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
                link.request("POST", f"/api/reviews/{self.key}/votes", body, headers)
                answer = link.getresponse()
                content = answer.read()
            except (OSError, http.client.HTTPException):
                link = None
                time.sleep(0.005)
                continue
            if answer.status == 200:
                mine.append((item, mark))
            elif answer.status != 503:
                self.refused.append(f"{answer.status} {content[:200]!r}")


def test_killed_fifty_times_on_sqlite(folder: Path) -> None:
    _kill_and_count(world(folder))


@pytest.mark.xdist_group("postgres")
def test_killed_fifty_times_on_postgresql(folder: Path) -> None:
    with postgres() as url:
        here = world(folder, database=url)
        try:
            _kill_and_count(here)
        finally:
            here.server.database.close()


def _kill_and_count(here: World) -> None:
    owner, key = start_review(here, votes=3, sentinels=0.2)
    tokens = [
        owner.post(f"/api/reviews/{key}/reviewers", {"name": f"reviewer {number}"}, 201)["token"] for number in range(CLIENTS)
    ]
    with here.server.database.reading() as transaction:
        items = [item.id for item in transaction.query(Item)]
    here.server.database.close()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    load = Load(port, key, items, confirmed=[[] for _ in tokens])
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
    """Every confirmed vote is there once and on its picture, one vote stands a reviewer and picture, and the counts are right."""
    with here.server.database.reading() as transaction:
        votes = transaction.query(Vote).all()
        items = transaction.query(Item).all()
    kept = {vote.comment: vote.item_id for vote in votes}
    assert len(kept) == len(votes)
    confirmed = [each for mine in load.confirmed for each in mine]
    assert len(confirmed) >= KILLS * VOTES_A_LIFE
    lost = [mark for item, mark in confirmed if kept.get(mark) != item]
    assert not lost, f"{len(lost)} of {len(confirmed)} confirmed votes are lost"
    standing = Counter((vote.reviewer_id, vote.item_id) for vote in votes if vote.withdrawn is None)
    assert max(standing.values()) == 1
    trusted = _trusted(here)
    counted = Counter(item for reviewer, item in standing if reviewer in trusted)
    assert {item.id: item.votes for item in items if item.expected is None} == {
        item.id: counted[item.id] for item in items if item.expected is None
    }


def _trusted(here: World) -> set[int]:
    from counterfoil.web.database import Reviewer

    with here.server.database.reading() as transaction:
        return {reviewer.id for reviewer in transaction.query(Reviewer) if reviewer.trusted}
