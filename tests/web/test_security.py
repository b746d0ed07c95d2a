"""Let no one in, and let nothing out; no request breaks the server."""

from __future__ import annotations

import http.client
import json
import logging
import queue
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote, urlencode

import anyio
import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from counterfoil.core.errors import UsageError
from counterfoil.web import app as serving
from counterfoil.web.access import ServerSettings
from counterfoil.web.database import Review, ReviewItem

from .world import TOKEN, World, invite, link_of, reviewer_key, start_review, world

HOSTILE = "<script>alert(1)</script><img src=x onerror=alert(2)>\"'&{{7*7}}"
OWNERS_PAGES = ("/", "/runs/one", "/progress/one", "/reports/one", "/compare?run=one&run=one", "/board", "/sites/x/index.html")


@pytest.fixture
def locked_world(folder: Path) -> Iterator[World]:
    """A server that demands a token."""
    found = world(folder, token=TOKEN)
    yield found
    found.database.close()


def test_only_loopback_goes_without_a_token(tmp_path: Path) -> None:
    for host in ("127.0.0.1", "localhost", "::1", "127.8.9.1"):
        assert ServerSettings(tmp_path, host=host).open
    for host in ("0.0.0.0", "::", "192.168.1.7", "runs.example"):
        with pytest.raises(UsageError, match="token is needed"):
            ServerSettings(tmp_path, host=host)
        assert not ServerSettings(tmp_path, host=host, token=TOKEN).open
    with pytest.raises(UsageError, match="too short"):
        ServerSettings(tmp_path, token="short")
    assert TOKEN not in repr(ServerSettings(tmp_path, token=TOKEN))


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example", "", "192.168.0.9:8765"])
def test_an_open_server_answers_to_local_names_only(here: World, host: str) -> None:
    assert here.browser().get("/", headers={"host": host}).status_code == 421
    assert here.browser().get("/", headers={"host": "[::1]:8765"}).status_code == 200


def test_every_address_asks_for_a_token(locked_world: World) -> None:
    _, key = start_review(locked_world, votes=1, known=0)
    for browser in (
        locked_world.browser(),
        locked_world.browser(authorization="Bearer wrong"),
        locked_world.browser(cookie="counterfoil=e30=.x.y"),
    ):
        for path in (*OWNERS_PAGES, f"/reviews/{key}", f"/reviews/{key}/ties", f"/review/{key}", f"/review/{key}/images/1"):
            assert browser.get(path).status_code == 401, path
        for path in ("/reviews", f"/reviews/{key}/reviewers", f"/reviews/{key}/ties", f"/reviews/{key}/verdicts"):
            assert browser.post(path, data={"run": "one", "name": "x", "item": 1, "keep": "true"}).status_code == 401, path
        for path in ("next", "votes", "skips", "undo"):
            assert browser.post(f"/review/{key}/{path}", json={"item": 1, "present": True}).status_code in (401, 422), path
    assert locked_world.owner().get("/").status_code == 200
    assert locked_world.browser(authorization=f"Bearer {TOKEN}").get("/progress/one").json()["images"] == 24


def test_a_reviewer_sees_their_review_and_nothing_else(locked_world: World) -> None:
    owner, key = start_review(locked_world, votes=1, known=0)
    _, other = start_review(locked_world, votes=1, known=0, owner=owner)
    ada, ben, cleo = (invite(locked_world, owner, *each) for each in ((key, "Ada"), (other, "Ben"), (key, "Cleo")))
    image = ada.next()["item"]["image"]
    assert ada.browser.get(image).headers["content-type"] == "image/png"
    assert ben.browser.get(image).status_code == 404
    assert cleo.browser.get(image).status_code == 404  # not asked about it
    assert owner.get(image).status_code == 200
    for path in (*OWNERS_PAGES, f"/reviews/{key}", f"/reviews/{key}/ties"):
        assert ada.browser.get(path).status_code == 403, path
    assert ada.browser.post(f"/review/{other}/next").status_code == 401
    assert ada.browser.post(f"/reviews/{key}/verdicts").status_code == 403


def test_a_withdrawn_invitation_is_worth_nothing(locked_world: World) -> None:
    owner, key = start_review(locked_world, votes=1, known=0)
    ada = invite(locked_world, owner, key, "Ada")
    assert ada.browser.get(f"/review/{key}").status_code == 200
    assert owner.post(f"/reviews/{key}/reviewers/{reviewer_key(locked_world, key, 'Ada')}/revoke").status_code == 303
    assert ada.browser.get(f"/review/{key}").status_code == 401
    assert ada.browser.post(f"/review/{key}/next").status_code == 401
    assert locked_world.browser().post("/enter", data={"token": ada.token}).status_code == 401
    assert locked_world.browser(authorization=f"Bearer {ada.token}").post(f"/review/{key}/next").status_code == 401


def test_cookies_are_for_this_site_and_out_of_reach_of_scripts(locked_world: World, folder: Path) -> None:
    answer = locked_world.browser().post("/enter", data={"token": TOKEN})
    assert answer.status_code == 303 and answer.headers["location"] == "/"
    (cookie,) = answer.headers.get_list("set-cookie")
    assert "httponly" in cookie.lower() and "samesite=lax" in cookie.lower() and TOKEN not in cookie
    assert "secure" not in cookie.lower()
    behind = world(folder, token=TOKEN, https=True)
    assert "secure" in behind.browser().post("/enter", data={"token": TOKEN}).headers["set-cookie"].lower()


def test_a_session_ends_when_its_owner_leaves_or_the_token_changes_and_survives_a_restart(
    locked_world: World, folder: Path
) -> None:
    browser = locked_world.owner()
    cookies = dict(browser.cookies)
    for token, status in ((TOKEN, 200), (TOKEN + "!", 401)):
        again = world(folder, token=token).browser()
        again.cookies.update(cookies)
        assert again.get("/").status_code == status
    forged = locked_world.browser(cookie=f"counterfoil={cookies['counterfoil'][:-2]}xx")
    assert forged.get("/").status_code == 401
    assert browser.post("/leave").status_code == 303
    assert browser.get("/").status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"origin": "http://evil.example", "sec-fetch-site": "same-origin"},
    ],
)
def test_a_request_from_another_site_changes_nothing(locked_world: World, headers: dict[str, str]) -> None:
    browser = locked_world.owner()
    body = {"run": "one", "votes": 1}
    assert browser.post("/reviews", data=body, headers=headers).status_code == 403
    assert browser.post("/enter", data={"token": TOKEN}, headers=headers).status_code == 403
    with locked_world.database.reading() as db:
        assert db.query(Review).count() == 0
    right = {"origin": "http://runs.example", "sec-fetch-site": "same-origin"}
    assert browser.post("/reviews", data=body, headers=right).status_code == 303


def test_tokens_are_kept_as_hashes_and_in_no_log_and_no_answer(locked_world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    owner, key = start_review(locked_world, votes=1, known=0)
    token = link_of(owner, key, "Ada")
    secret = token.partition(".")[2]
    answers = []
    for browser in (locked_world.browser(), locked_world.enter(token), locked_world.browser(authorization=f"Bearer {token}")):
        answers.append(browser.get(f"/enter?token={token}"))
        answers.append(browser.get("/nothing", headers={"accept": "text/html", "cookie": f"counterfoil={token}"}))
        answers.append(browser.post("/enter", data={"token": token + "x" * 300}))
        answers.append(browser.post(f"/review/{key}/votes", json={"item": token, "present": token, token: 1}))
    logged = "\n".join(record.getMessage() for record in caplog.records if record.name.startswith(("counterfoil", "uvicorn")))
    assert "POST" in logged
    for text in [logged, *(answer.text for answer in answers)]:
        assert secret not in text and TOKEN not in text
    stored = b"".join(path.read_bytes() for path in locked_world.settings.state.glob("web.sqlite*"))
    assert secret.encode() not in stored and TOKEN.encode() not in stored


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
    site = here.settings.state / "sites" / "report-x"
    site.mkdir(parents=True)
    (site / "index.html").write_text("a page", encoding="utf-8")
    (site / "linked").symlink_to(away)
    (site / "linked.txt").symlink_to(outside)
    browser = here.browser()
    assert browser.get("/sites/report-x/index.html").text == "a page"
    for start in ("/runs/", "/reports/", "/progress/", "/sites/report-x/", "/sites/", "/static/"):
        status, text = _raw(here, start + trick)
        assert status in (404, 422), (start, trick)
        assert "SECRET" not in text and "root:" not in text and str(root.parent) not in text
    assert here.app.state.catalogue.names() == ["one"]


def test_an_image_that_leads_out_of_its_run_is_not_shown(here: World) -> None:
    owner, key = start_review(here, votes=1, known=0)
    ada = invite(here, owner, key, "Ada")
    item = ada.next()["item"]
    secret = here.settings.root.parent / "secret.png"
    secret.write_bytes(b"SECRET")
    with here.database.writing() as db:
        file = here.settings.root / "one" / db.get_one(ReviewItem, item["id"]).file
    file.unlink()
    assert "missing" in ada.browser.get(item["image"]).json()["error"]
    file.symlink_to(secret)
    assert ada.browser.get(item["image"]).status_code == 422
    with here.database.writing() as db:
        db.get_one(ReviewItem, item["id"]).file = "../../secret.png"
    assert ada.browser.get(item["image"]).status_code == 422


def test_names_and_comments_full_of_script_show_as_text(tmp_path: Path) -> None:
    from tests.report.made import Plan, build

    build(tmp_path / "one", Plan(classes=(HOSTILE, "b", "c"), model=f"python:{HOSTILE}"))
    here = world(tmp_path)
    owner, key = start_review(here, votes=1, known=0)
    ada = invite(here, owner, key, HOSTILE)
    turn = ada.next()
    while turn["item"]:
        turn = ada.vote(turn["item"]["id"], present=None, comment=HOSTILE)
    for path in ("/", "/runs/one", f"/reviews/{key}", f"/reviews/{key}/ties", f"/review/{key}"):
        browser = ada.browser if path.startswith("/review/") else owner
        answer = browser.get(path, headers={"accept": "text/html"})
        assert answer.status_code == 200
        assert "<script>alert" not in answer.text and "<img src=x" not in answer.text
        assert "&lt;script&gt;" in answer.text and "{{7*7}}" in answer.text  # shown as it is, and no template of ours


def test_every_answer_forbids_inline_script(here: World) -> None:
    browser = here.browser()
    for path in ("/", "/runs/one", "/enter", "/nothing", "/progress/one", "/static/vote.js"):
        answer = browser.get(path, headers={"accept": "text/html"})
        policy = answer.headers["content-security-policy"]
        assert "script-src 'self'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff" and "cache-control" in answer.headers
        assert "<script>" not in answer.text and " onclick" not in answer.text and " style=" not in answer.text
    assert "frame-ancestors" in browser.get("/", headers={"host": "evil.example"}).headers["content-security-policy"]


def test_bodies_have_a_limit(here: World) -> None:
    owner, key = start_review(here, votes=1, known=0)
    ada = invite(here, owner, key, "Ada")
    huge = json.dumps({"item": 1, "present": True, "comment": "x" * 100_000}).encode()
    path = f"/review/{key}/votes"
    assert ada.browser.post(path, content=huge).status_code == 413

    def pieces() -> Iterator[bytes]:  # without a length
        for start in range(0, len(huge), 8192):
            yield huge[start : start + 8192]

    assert ada.browser.post(path, content=pieces()).status_code == 413
    assert ada.browser.post(path, json={"item": 1, "present": True, "comment": "x" * 2001}).status_code == 422


def test_heads_of_requests_have_a_limit_in_size_and_time(here: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "HEAD_SECONDS", 0.5)
    ready: list[int] = []
    done = threading.Event()

    def run() -> None:
        config = serving.uvicorn.Config(here.app, http=serving.PatientProtocol, log_config=None, lifespan="off", ws="none")
        server = serving.uvicorn.Server(config)
        listening = socket.create_server(("127.0.0.1", 0))
        ready.append(listening.getsockname()[1])
        threading.Thread(target=lambda: (done.wait(), setattr(server, "should_exit", True))).start()
        server.run(sockets=[listening])

    thread = threading.Thread(target=run)
    thread.start()
    try:
        while not ready:
            threading.Event().wait(0.01)
        with socket.create_connection(("127.0.0.1", ready[0])) as endless:
            endless.settimeout(20)
            with pytest.raises(OSError):  # noqa: PT012 - the connection is closed at some point
                endless.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nX: ")
                while True:
                    endless.sendall(b"x" * 65536)
        for begun in (b"", b"GET / HTTP/1.1\r\nHost: loc"):
            with socket.create_connection(("127.0.0.1", ready[0])) as slow:
                slow.settimeout(20)
                slow.sendall(begun)
                assert _is_closed(slow)
        fair = http.client.HTTPConnection("127.0.0.1", ready[0], timeout=20)
        for _ in range(2):  # who waits between two requests is served
            fair.request("GET", "/static/icon.svg", headers={"host": "localhost"})
            assert fair.getresponse().read()
            threading.Event().wait(0.7)
        fair.close()
    finally:
        done.set()
        thread.join()


def test_more_connections_than_the_limit_are_refused_and_the_server_answers_afterwards(
    here: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "CONNECTIONS", 4)
    servers: list[Any] = []

    class Known(serving.uvicorn.Server):
        def __init__(self, *given: Any, **options: Any) -> None:
            super().__init__(*given, **options)
            servers.append(self)

    monkeypatch.setattr(serving.uvicorn, "Server", Known)
    started: queue.Queue[int] = queue.Queue()
    settings = replace(here.settings, port=0)
    serve = threading.Thread(target=lambda: serving.serve(settings, told=lambda told: started.put(told.port)))
    serve.start()
    port = started.get(timeout=30)

    def status() -> int:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as link:
            link.request("GET", "/static/icon.svg", headers={"host": "localhost"})
            return link.getresponse().status

    try:
        assert status() == 200
        with ExitStack() as held:
            for _ in range(6):
                held.enter_context(socket.create_connection(("127.0.0.1", port))).sendall(b"GET / HTTP/1.1\r\nHost: loc")
            assert status() == 503
        answers = iter(status, 200)  # until the server has noticed that the others have gone
        assert all(answer == 503 for answer in islice(answers, 1000))
        assert status() == 200
    finally:
        servers[0].should_exit = True
        serve.join()


def _is_closed(link: socket.socket) -> bool:
    try:
        return link.recv(1024) == b""
    except ConnectionResetError:
        return True


def test_the_application_loads_no_torch() -> None:
    program = "import sys, counterfoil.web.app; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.xdist_group("schemathesis")
def test_no_request_that_fits_the_description_breaks_the_server(here: World) -> None:
    owner, key = start_review(here, votes=2, known=20)
    ada = invite(here, owner, key, "Ada")
    invite(here, owner, key, "Ben")
    known = {"key": key, "name": "one", "item": ada.next()["item"]["id"], "who": reviewer_key(here, key, "Ben")}
    here.app.openapi_url = "/openapi.json"  # which is not served
    schema = schemathesis.openapi.from_dict(here.app.openapi())
    schema.app = here.app
    seen: dict[str, set[int]] = {}
    for found in schema.get_all_operations():
        operation = found.ok()

        @seed(1)
        @settings(max_examples=15, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(), real=st.booleans(), reviewing=st.booleans())
        def ask(case: Any, real: bool, reviewing: bool) -> None:
            if real:  # what is there, so that more than the first check is reached
                case.path_parameters = {name: known.get(name, value) for name, value in (case.path_parameters or {}).items()}
            cookies = dict(ada.browser.cookies) if reviewing else {}
            answer = case.call(base_url="http://localhost", headers={"host": "localhost"}, cookies=cookies)
            seen.setdefault(f"{case.method} {case.path}", set()).add(answer.status_code)
            assert answer.status_code < 500, answer.text

        ask()
    assert len(seen) >= 12, seen
    reached = [path for path, statuses in seen.items() if statuses & {200, 303}]
    assert len(reached) >= 10, seen


GARBAGE = ["", "\0", "\ud800", "é" * 300, "-1", "1e999", "nan", "99999999999999999999", "<b>", "../..", "%00", "null", "[]"]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_forms_and_pages_take_any_garbage(here: World, garbage: str) -> None:
    owner, key = start_review(here, votes=1, known=0)
    ada = invite(here, owner, key, "Ada")
    sent = garbage.encode("utf-8", "surrogatepass")
    for path, names in {
        "/enter": ["token"],
        "/reviews": ["run", "votes", "known", "limit", "control"],
        f"/reviews/{key}/reviewers": ["name"],
        f"/reviews/{key}/ties": ["item", "keep"],
        f"/reviews/{key}/verdicts": ["x"],
        f"/reviews/{key}/reviewers/{quote(sent)}/revoke": ["x"],
    }.items():
        for name in names:
            whole = {"run": b"one", "item": b"1", "keep": b"true", name: sent}
            form = {"content-type": "application/x-www-form-urlencoded"}
            assert owner.post(path, content=urlencode(whole), headers=form).status_code < 500, (path, name)
        for kind in ("application/json", "multipart/form-data; boundary=x", "text/plain", "\u00e9/x"):
            answer = owner.post(path, content=sent, headers={"content-type": kind.encode("latin-1")})
            assert answer.status_code < 500, (path, kind)
    for path in ("next", "votes", "skips", "undo"):
        answer = ada.browser.post(f"/review/{key}/{path}", content=sent, headers={"content-type": "application/json"})
        assert answer.status_code < 500, path
    for path in (
        "/compare?run=one&run=",
        "/runs/",
        "/reports/",
        "/progress/",
        "/reviews/",
        "/review/",
        "/sites/",
        "/sites/x/",
        "/",
    ):
        answer = owner.get(path + quote(sent), headers={"accept": "text/html"})
        assert answer.status_code < 500, path
    assert owner.get("/", headers={"cookie": b"counterfoil=" + quote(sent).encode()}).status_code == 200


def _raw(here: World, path: str) -> tuple[int, str]:
    """The answer to an address as it stands; a client would tidy it up."""
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
