"""Let no one in, and let nothing out."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import anyio
import pytest
from starlette.testclient import TestClient

from counterfoil.core.errors import UsageError
from counterfoil.web.security import tokens
from counterfoil.web.settings import Settings

from .world import TOKEN, Person, World, invited, start_review, world

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}"


@pytest.fixture
def locked(folder: Path) -> Iterator[World]:
    """A server that demands a token."""
    found = world(folder, token=TOKEN)
    yield found
    found.server.database.close()


def test_only_loopback_goes_without_a_token(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "localhost", "::1", "127.8.9.1"):
        assert Settings(tmp_path, host=host).open
    for host in ("0.0.0.0", "::", "192.168.1.7", "runs.example"):
        with pytest.raises(UsageError, match="token is needed"):
            Settings(tmp_path, host=host)
        assert not Settings(tmp_path, host=host, token=TOKEN).open
    with pytest.raises(UsageError, match="too short"):
        Settings(tmp_path, token="short")
    assert TOKEN not in repr(Settings(tmp_path, token=TOKEN))


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "192.168.0.9:8765"])
def test_an_open_server_answers_to_local_names_only(here: World, host: str) -> None:
    answer = here.browser().get("/api/runs", headers={"host": host})
    assert answer.status_code == 421


def test_every_address_asks_for_a_token(locked: World) -> None:
    browser = locked.browser()
    description = browser.get("/openapi.json").json()
    pages = [
        "/",
        "/runs/one",
        "/reports/one",
        "/compare?run=one",
        "/board",
        "/api",
        "/review/x",
        "/reviews/x",
        "/sites/x/index.html",
    ]
    for path in [*description["paths"], *pages]:
        if path not in ("/api/session",):
            address = path.replace("{name}", "one").replace("{key}", "x").replace("{item}", "1").replace("{reviewer}", "x")
            for method in description["paths"].get(path, {"get": {}}):
                assert browser.request(method.upper(), address).status_code in (401, 403, 404, 422), (method, path)
                answer = browser.request(method.upper(), address, headers={"authorization": "Bearer wrong"})
                assert answer.status_code in (401, 403, 404, 422), (method, path)
    for path in ("/", "/runs/one", "/board", "/api/runs"):
        assert browser.get(path).status_code == 401
    assert locked.owner().browser.get("/api/runs").status_code == 200


def test_a_reviewer_sees_their_review_and_nothing_else(locked: World) -> None:
    owner, key = start_review(locked, votes=1, sentinels=0)
    _, other = start_review(locked, votes=1, sentinels=0)
    ada = invited(locked, owner, key, "Ada")
    item = ada.get(f"/api/reviews/{key}/next")["item"]
    assert ada.browser.get(item["picture"]).headers["content-type"] == "image/png"
    assert invited(locked, owner, other, "Ben").browser.get(item["picture"]).status_code == 404
    for path in ("/", "/runs/one", "/api/runs", f"/api/reviews/{key}", f"/api/reviews/{key}/agreement", "/api/reviews"):
        assert ada.browser.get(path).status_code == 403
    assert ada.browser.get(f"/api/reviews/{other}/next").status_code == 401
    refused = ada.browser.post(f"/api/reviews/{other}/votes", json={"item": item["id"], "present": True})
    assert refused.status_code == 401


def test_a_withdrawn_invitation_is_worth_nothing(locked: World) -> None:
    owner, key = start_review(locked, votes=1, sentinels=0)
    made = owner.post(f"/api/reviews/{key}/reviewers", {"name": "Ada"}, 201)
    browser = _entered(locked, made["token"])
    assert browser.get(f"/review/{key}").status_code == 200
    assert owner.browser.delete(f"/api/reviews/{key}/reviewers/{made['key']}").status_code == 204
    assert browser.get(f"/review/{key}").status_code == 401
    assert locked.reviewer(made["token"]).browser.get(f"/api/reviews/{key}/next").status_code == 401


def test_cookies_are_for_this_site_and_out_of_reach_of_scripts(locked: World) -> None:
    browser = locked.browser()
    form = browser.get("/api/session").json()["form_token"]
    answer = browser.post("/enter", data={"token": TOKEN, "form_token": form})
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    for cookie in answer.headers.get_list("set-cookie"):
        assert "HttpOnly" in cookie and "SameSite=lax" in cookie and TOKEN not in cookie
    assert browser.get("/").status_code == 200
    browser.headers["x-form-token"] = browser.get("/api/session").json()["form_token"]
    assert browser.post("/leave").status_code == 303
    assert browser.get("/").status_code == 401


def test_a_form_from_another_site_changes_nothing(locked: World) -> None:
    browser = _entered(locked, TOKEN)
    body = {"run": "one", "votes": 1}
    assert browser.post("/api/reviews", json=body).status_code == 403
    assert browser.post("/reviews", data=body).status_code == 403
    assert browser.post("/reviews", data={**body, "form_token": "0" * 64}).status_code == 403
    form = browser.get("/api/session").json()["form_token"]
    stolen = locked.browser().get("/api/session").json()["form_token"]
    assert browser.post("/reviews", data={**body, "form_token": stolen}).status_code == 403
    right = {**body, "form_token": form}
    assert browser.post("/reviews", data=right, headers={"origin": "http://evil.example"}).status_code == 403
    assert browser.post("/reviews", data=right, headers={"origin": "null"}).status_code == 403
    with locked.server.database.reading() as transaction:
        from counterfoil.web.database import Review

        assert transaction.query(Review).count() == 0
    assert browser.post("/reviews", data=right, headers={"origin": "http://runs.example"}).status_code == 303


def test_tokens_are_compared_in_constant_time_and_kept_as_hashes(locked: World, monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []
    plain = tokens.hmac.compare_digest

    def watched(one: bytes, two: bytes) -> bool:
        compared.append((one, two))
        return bool(plain(one, two))

    monkeypatch.setattr(tokens.hmac, "compare_digest", watched)
    assert locked.browser(authorization=f"Bearer {TOKEN[:-1]}x").get("/api/runs").status_code == 401
    assert any(two == tokens.digest(TOKEN).encode() for _, two in compared)
    assert {len(each) for pair in compared for each in pair} == {64}  # hashes, whatever the length of what was sent
    compared.clear()
    owner, key = start_review(locked, votes=1, sentinels=0)
    token = owner.post(f"/api/reviews/{key}/reviewers", {"name": "Ada"}, 201)["token"]
    locked.reviewer(token).get(f"/api/reviews/{key}/next")
    assert (tokens.digest(token.partition(".")[2]).encode(),) * 2 in compared
    stored = b"".join(path.read_bytes() for path in locked.settings.state.glob("web.sqlite*"))
    assert token.partition(".")[2].encode() not in stored and TOKEN.encode() not in stored


def test_tokens_are_in_no_log_and_no_answer(locked: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    owner, key = start_review(locked, votes=1, sentinels=0)
    token = owner.post(f"/api/reviews/{key}/reviewers", {"name": "Ada"}, 201)["token"]
    secret = token.partition(".")[2]
    answers = []
    for browser in (locked.browser(), _entered(locked, token), locked.reviewer(token).browser):
        answers.append(browser.get(f"/enter?token={token}"))
        answers.append(browser.get("/nothing", headers={"accept": "text/html", "cookie": f"counterfoil={token}"}))
        answers.append(browser.post("/enter", data={"token": token + "x" * 300}))
        answers.append(browser.post(f"/api/reviews/{key}/votes", json={"item": token, "present": token, token: 1}))
    logged = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith(("counterfoil", "uvicorn")))
    assert "POST" in logged
    for text in [logged, *(answer.text for answer in answers)]:
        assert secret not in text and TOKEN not in text


TRICKS = [
    "../secret.txt",
    "..%2fsecret.txt",
    "%2e%2e/secret.txt",
    "%2e%2e%2fsecret.txt",
    "..%252fsecret.txt",
    "one/../../secret.txt",
    "one/..%2f..%2fsecret.txt",
    "....//secret.txt",
    "..%5csecret.txt",
    "..%c0%afsecret.txt",
    "/etc/passwd",
    "%2fetc%2fpasswd",
    "one%00.png",
    "linked",
    "linked/run.json",
    "one/linked.txt",
    ".counterfoil/web.sqlite",
    "%2ecounterfoil/web.sqlite",
    "x" * 5000,
]


@pytest.mark.parametrize("trick", TRICKS)
def test_no_address_leads_out_of_the_folder(here: World, trick: str) -> None:
    root = here.settings.root
    outside = root.parent / "secret.txt"
    outside.write_text("SECRET", encoding="utf-8")
    away = root.parent / "away"
    away.mkdir()
    (away / "run.json").write_bytes((root / "one" / "run.json").read_bytes())
    (root / "linked").symlink_to(away)
    site = here.server.sites.folder / "report-x"
    site.mkdir(parents=True)
    (site / "index.html").write_text("a page", encoding="utf-8")
    (site / "linked").symlink_to(away)
    (site / "linked.txt").symlink_to(outside)
    browser = here.browser()
    assert browser.get("/sites/report-x/index.html").text == "a page"
    for start in ("/runs/", "/reports/", "/api/runs/", "/api/progress/", "/sites/report-x/", "/sites/", "/static/"):
        status, text = _raw(here, start + trick)
        assert status in (404, 422), (start, trick)
        assert "SECRET" not in text and "root:" not in text and str(root.parent) not in text
    assert [run["name"] for run in browser.get("/api/runs").json()] == ["one"]


def test_a_picture_that_leads_out_of_its_run_is_not_shown(here: World) -> None:
    owner, key = start_review(here, votes=1, sentinels=0)
    ada = invited(here, owner, key, "Ada")
    item = ada.get(f"/api/reviews/{key}/next")["item"]
    secret = here.settings.root.parent / "secret.png"
    secret.write_bytes(b"SECRET")
    with here.server.database.writing() as transaction:
        from counterfoil.web.database import Item

        row = transaction.get_one(Item, item["id"])
        file = here.settings.root / "one" / row.file
    file.unlink()
    assert ada.browser.get(item["picture"]).status_code == 422  # missing
    file.symlink_to(secret)
    assert ada.browser.get(item["picture"]).status_code == 422
    with here.server.database.writing() as transaction:
        transaction.get_one(Item, item["id"]).file = "../../secret.png"
    assert ada.browser.get(item["picture"]).status_code == 422


def test_names_and_comments_full_of_script_show_as_text(tmp_path: Path) -> None:
    from tests.report.made import Plan, build

    build(tmp_path / "one", Plan(classes=(HOSTILE, "b", "c"), model=f"python:{HOSTILE}"))
    here = world(tmp_path)
    owner, key = start_review(here, votes=1, sentinels=0)
    ada = invited(here, owner, key, HOSTILE)
    for _ in range(18):
        item = ada.get(f"/api/reviews/{key}/next")["item"]
        ada.post(f"/api/reviews/{key}/votes", {"item": item["id"], "present": None, "comment": HOSTILE})
    for path in ("/", "/runs/one", f"/reviews/{key}", f"/reviews/{key}/ties", f"/review/{key}"):
        answer = (ada if path.startswith("/review/") else owner).browser.get(path, headers={"accept": "text/html"})
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text and "<img src=x" not in answer.text
        assert "&lt;script&gt;" in answer.text and "{{7*7}}" in answer.text  # shown as it is, and no template of ours


def test_every_answer_forbids_inline_script(here: World) -> None:
    browser = here.browser()
    for path in ("/", "/runs/one", "/enter", "/nothing", "/api/runs", "/static/vote.js", "/openapi.json"):
        headers = browser.get(path, headers={"accept": "text/html"}).headers
        policy = headers["content-security-policy"]
        assert "script-src 'self'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert "cache-control" in headers
    pages = [browser.get(path, headers={"accept": "text/html"}).text for path in ("/", "/runs/one", "/enter")]
    for text in pages:
        assert "<script>" not in text and " onclick" not in text and " style=" not in text


def test_bodies_have_a_limit(here: World) -> None:
    owner, key = start_review(here, votes=1, sentinels=0)
    ada: Person = invited(here, owner, key, "Ada")
    huge = json.dumps({"item": 1, "present": True, "comment": "x" * 100_000}).encode()
    path = f"/api/reviews/{key}/votes"
    assert ada.browser.post(path, content=huge).status_code == 413

    def pieces() -> Iterator[bytes]:  # without a length
        for start in range(0, len(huge), 8192):
            yield huge[start : start + 8192]

    assert ada.browser.post(path, content=pieces()).status_code == 413
    assert ada.browser.post(path, json={"item": 1, "present": True, "comment": "x" * 2001}).status_code == 422


def _raw(here: World, path: str) -> tuple[int, str]:
    """What the server answers to an address as it stands; a client would tidy it up."""
    sent: list[Any] = []

    async def ask() -> None:
        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http",
            "path": unquote(path, errors="surrogateescape").encode("utf-8", "surrogateescape").decode("utf-8", "replace"),
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(b"host", b"localhost")],
        }

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await here.app(scope, receive, send)

    asking = threading.Thread(target=anyio.run, args=(ask,))  # apart, as a browser test may have left a loop in this thread
    asking.start()
    asking.join()
    return sent[0]["status"], b"".join(message.get("body", b"") for message in sent).decode("utf-8", "replace")


def _entered(locked: World, token: str) -> TestClient:
    browser = locked.browser()
    form = browser.get("/api/session").json()["form_token"]
    assert browser.post("/enter", data={"token": token, "form_token": form}).status_code == 303
    return browser
