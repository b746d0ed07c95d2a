"""A server over a few small runs, asked without a network, and people who use it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from starlette.testclient import TestClient

from counterfoil.web.app import create_app
from counterfoil.web.security.guard import Guard
from counterfoil.web.server import Server
from counterfoil.web.settings import Settings

TOKEN = "owner-token-that-is-long-enough"


@dataclass
class World:
    """An application and its server's parts."""

    settings: Settings
    server: Server
    app: Any

    def browser(self, **headers: str) -> TestClient:
        """Somebody's browser, with cookies of its own."""
        host = "localhost" if self.settings.open else "runs.example"
        return TestClient(self.app, base_url=f"http://{host}", headers=headers, follow_redirects=False)

    def owner(self) -> Person:
        """The owner, by header or, where the server is open, by being there."""
        headers = {} if self.settings.open else {"authorization": f"Bearer {self.settings.token}"}
        return Person(self.browser(**headers))

    def reviewer(self, token: str) -> Person:
        """Somebody with an invitation."""
        return Person(self.browser(authorization=f"Bearer {token}"))


@dataclass
class Person:
    """A browser, and the form token it carries."""

    browser: TestClient

    def __post_init__(self) -> None:
        self.browser.headers["x-form-token"] = self.browser.get("/api/session").json()["form_token"]

    def get(self, path: str, status: int = 200) -> Any:
        """The JSON under an address."""
        answer = self.browser.get(path)
        assert answer.status_code == status, answer.text
        return answer.json()

    def post(self, path: str, body: Any = None, status: int = 200) -> Any:
        """What the server answers to some JSON."""
        answer = self.browser.post(path, json=body if body is not None else {})
        assert answer.status_code == status, answer.text
        return answer.json()


def world(root: Path, **settings: Any) -> World:
    """A server over the runs in `root`."""
    told = Settings(root, **settings)
    app = create_app(told)
    return World(told, app.state.server, Guard(app, told))


def start_review(here: World, run: str = "one", **plan: Any) -> tuple[Person, str]:
    """The owner, and the key of a new review."""
    owner = here.owner()
    return owner, owner.post("/api/reviews", {"run": run, **plan}, 201)["key"]


def invited(here: World, owner: Person, key: str, name: str) -> Person:
    """A new reviewer of a review."""
    return here.reviewer(owner.post(f"/api/reviews/{key}/reviewers", {"name": name}, 201)["token"])


def truth(server: Server, item: int) -> bool:
    """What somebody who looks would say of a picture: sentinels as they are, of others yes."""
    from counterfoil.web.database import Item

    with server.database.reading() as transaction:
        expected = transaction.get_one(Item, item).expected
    return expected is not False
