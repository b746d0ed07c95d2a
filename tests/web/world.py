"""A server over a few small runs, asked without a network, and people who use it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from counterfoil.web.access import ServerSettings, review_of
from counterfoil.web.app import create_app
from counterfoil.web.database import Database, Invited, Review, ReviewItem
from counterfoil.web.tally import ReviewSummary, agreements, summarise

TOKEN = "owner-token-that-is-long-enough"


@dataclass
class World:
    """An application and its parts."""

    settings: ServerSettings
    app: Any

    @property
    def database(self) -> Database:
        found: Database = self.app.state.database
        return found

    def browser(self, **headers: str) -> TestClient:
        """A browser, with cookies of its own."""
        host = "localhost" if self.settings.open else "runs.example"
        return TestClient(self.app, base_url=f"http://{host}", headers=headers, follow_redirects=False)

    def owner(self) -> TestClient:
        """The owner's browser: with a session or, where the server is open, just by being there."""
        return self.browser() if self.settings.open else self.enter(self.settings.token)

    def enter(self, token: str) -> TestClient:
        """A browser in which a person has followed their link."""
        browser = self.browser()
        answer = browser.post("/enter", data={"token": token})
        assert answer.status_code == 303, answer.text
        return browser

    def review(self, key: str) -> Review:
        with self.database.reading() as db:
            return review_of(db, key)

    def summary(self, key: str) -> ReviewSummary:
        with self.database.reading() as db:
            return summarise(db, review_of(db, key))

    def reviewers(self, key: str) -> dict[str, Any]:
        """The rows of the owner's page about reviewers, by name."""
        with self.database.reading() as db:
            return {row.reviewer.name: row for row in agreements(db, review_of(db, key)).reviewers}

    def items(self, key: str) -> list[ReviewItem]:
        with self.database.reading() as db:
            items = db.query(ReviewItem).where(ReviewItem.review_id == review_of(db, key).id)
            return list(items.order_by(ReviewItem.position))

    def truth(self, item: int) -> bool:
        """Answer of a person who looks: known answers as they are, of others yes."""
        with self.database.reading() as db:
            return db.get_one(ReviewItem, item).expected is not False


@dataclass
class Person:
    """A reviewer at their page."""

    browser: TestClient
    key: str
    token: str = ""

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        """Answer of the server to some JSON."""
        answer = self.browser.post(f"/review/{self.key}/{path}", json=body if body is not None else {})
        assert answer.status_code == status, answer.text
        return answer.json()

    def next(self) -> Any:
        return self.post("next")

    def vote(self, item: int, *, status: int = 200, **answer: Any) -> Any:
        return self.post("votes", {"item": item, **answer}, status)


def world(root: Path, **settings: Any) -> World:
    """A server over the runs in `root`."""
    told = ServerSettings(root, **settings)
    return World(told, create_app(told))


def start_review(here: World, run: str = "one", *, owner: TestClient | None = None, **plan: Any) -> tuple[TestClient, str]:
    """The owner's browser, and the key of a new review; `known` is in per cent, as the form has it."""
    owner = owner or here.owner()
    answer = owner.post("/reviews", data={"run": run, **plan})
    assert answer.status_code == 303, answer.text
    return owner, answer.headers["location"].rpartition("/")[2]


def invite(here: World, owner: TestClient, key: str, name: str) -> Person:
    """A new reviewer of a review, who has followed their link."""
    token = link_of(owner, key, name)
    return Person(here.enter(token), key, token)


def link_of(owner: TestClient, key: str, name: str) -> str:
    """The token of a new link."""
    answer = owner.post(f"/reviews/{key}/reviewers", data={"name": name})
    assert answer.status_code == 200, answer.text
    found = re.search(r'id="link">\S+/enter#(\S+)</code>', unescape(answer.text))
    assert found
    return found.group(1)


def reviewer_key(here: World, key: str, name: str) -> str:
    """A reviewer's name in addresses."""
    with here.database.reading() as db:
        return db.query(Invited).where(Invited.review_id == review_of(db, key).id, Invited.name == name).one().key
