"""The server's pages, and people at work: keys, phone, undo, a tab that dies, names full of script."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from counterfoil import store
from counterfoil.store import open_run
from tests.report.made import Plan, build
from tests.store.made import CLASSES, PROVENANCE, SPEC, fill
from tests.web.world import link_of, start_review, world

from .checks import focus_is_visible, problems

pytestmark = pytest.mark.xdist_group("browser")

IMAGES = 18
PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}


@contextmanager
def serve_folder(root: Path, *, port: int = 0) -> Iterator[str]:
    """The address of a server over `root`, started as people start it."""
    if not port:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
    command = [sys.executable, "-m", "counterfoil", "serve", str(root), "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout and server.stdout.readline().startswith("http"), "the server did not start"
            patience = time.monotonic() + 60
            while time.monotonic() < patience:
                with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                    break
            yield f"http://127.0.0.1:{port}"
        finally:
            server.terminate()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A server over two runs, and their folder."""
    root = tmp_path_factory.mktemp("served") / "runs"
    build(root / "one", Plan(control=True))
    build(root / "two", Plan(model="python:n", step=0.5))
    with serve_folder(root) as address:
        yield address, root


class Page:
    """A tab whose troubles are remembered."""

    def __init__(self, context: Any) -> None:
        self.tab = context.new_page()
        self.troubles: list[str] = []
        self.tab.on("pageerror", lambda error: self.troubles.append(str(error)))
        self.tab.on("console", lambda message: self.troubles.append(message.text) if message.type == "error" else None)

    def text(self, selector: str) -> str:
        return str(self.tab.inner_text(selector))

    def wait_for_counts(self, mine: int) -> None:
        self.tab.locator("#counts", has_text=re.compile(f"^{mine} judged by you")).wait_for(timeout=30_000)

    def press(self, *keys: str) -> None:
        """Keys one after another, each after the server has answered the one before."""
        for key in keys:
            self.tab.wait_for_selector("body.voting:not(.waiting)")
            self.tab.keyboard.press(key)
        self.tab.wait_for_selector("body.voting:not(.waiting)")


def _new_review(owner: Page, address: str, *, votes: int, known: int = 0) -> str:
    owner.tab.goto(f"{address}/runs/one")
    if not owner.tab.is_visible("#votes"):
        owner.tab.click("summary")
    owner.tab.fill("#votes", str(votes))
    owner.tab.fill("#known", str(known))
    owner.tab.click("form[action='/reviews'] button")
    owner.tab.wait_for_url("**/reviews/*")
    return str(owner.tab.url.rsplit("/", 1)[1])


def _invite(owner: Page, name: str) -> str:
    owner.tab.fill("#name", name)
    owner.tab.click("text=Make a link")
    return owner.text("#link")


def test_two_reviewers_vote_at_once_by_keyboard(browser: Any, site: tuple[str, Path]) -> None:
    address, root = site
    owner = Page(browser.new_context())
    key = _new_review(owner, address, votes=2)
    links = [_invite(owner, name) for name in ("Ada", "Ben")]
    contexts = [browser.new_context(), browser.new_context(**PHONE)]
    ada, ben = (Page(context) for context in contexts)
    for reviewer, link in zip((ada, ben), links, strict=True):
        reviewer.tab.goto(link)
        reviewer.tab.wait_for_selector("#work:not([hidden])")
        assert "#" not in reviewer.tab.url  # the token does not stay in the address

    for _ in range(4):  # Ada says yes to all, Ben no; then both the other way round for one more
        ada.press("a")
        ben.press("n")
    ada.press("y", "y", "n")
    ben.press("y", "y", "y")
    ada.wait_for_counts(5)
    ben.wait_for_counts(5)

    before = ada.tab.get_attribute("#image", "src")
    ada.press("z")  # takes back the last one, and sees it with her answer
    ada.wait_for_counts(4)
    assert ada.tab.get_attribute("#image", "src") != before
    pressed = ada.tab.eval_on_selector_all("[aria-pressed=true]", "all => all.map(b => b.dataset.question + b.dataset.answer)")
    assert pressed == ["presentyes", "singleyes", "usableno"]
    ada.press("c")
    ada.tab.keyboard.type("yes, and <b>nice</b> [y/n]")
    ada.tab.keyboard.press("Escape")
    ada.press("a")
    ada.wait_for_counts(5)

    with pytest.raises(Exception, match="crash"):
        ben.tab.goto("chrome://crash")  # his tab dies
    back = Page(contexts[1])
    back.tab.goto(f"{address}/review/{key}")
    back.wait_for_counts(5)
    while not back.tab.is_visible("#finished"):
        back.press("n")
    back.wait_for_counts(IMAGES)
    while not ada.tab.is_visible("#finished"):
        ada.press("a")
    ada.wait_for_counts(IMAGES)
    ada.tab.wait_for_selector("text=All done")

    # Ada kept all 18. Ben kept one: it is kept.
    owner.tab.goto(f"{address}/reviews/{key}")
    assert owner.text("h1") == f"{IMAGES} of {IMAGES} images judged"
    tiles = re.findall(r"(Kept|Rejected|Tied)\s+(\d+)", owner.text(".tiles"))
    assert {name: int(count) for name, count in tiles} == {"Kept": 1, "Rejected": 0, "Tied": IMAGES - 1}
    owner.tab.click("text=/Decide/")
    for _ in range(2):
        owner.tab.locator("text=Reject").first.click()
        owner.tab.wait_for_load_state()
    owner.tab.goto(f"{address}/reviews/{key}")
    owner.tab.click("text=Write verdicts into the run")
    assert "1 images kept, 2 rejected" in owner.text(".notice.good")
    verdicts = list(open_run(root / "one").verdicts("human"))
    assert sorted(verdict.keeps_label for verdict in verdicts) == [False, False, True]
    owner.tab.goto(f"{address}/runs/one")
    assert "According to people" in owner.text("main")
    assert ada.troubles == ben.troubles == back.troubles == owner.troubles == []


def test_a_vote_survives_a_server_that_is_away_for_a_while(browser: Any, tmp_path: Path) -> None:
    build(tmp_path / "one", Plan())
    owner = Page(browser.new_context())
    with serve_folder(tmp_path) as address:
        _new_review(owner, address, votes=1)
        owner.tab.click("text=Review images myself")
        owner.tab.wait_for_selector("#work:not([hidden])")
    owner.tab.keyboard.press("a")
    owner.tab.wait_for_selector("#trouble:not([hidden])")
    assert "Not saved yet" in owner.text("#trouble")
    with serve_folder(tmp_path, port=int(address.rpartition(":")[2])):
        owner.wait_for_counts(1)
        assert not owner.tab.is_visible("#trouble")


def test_reviewing_fits_a_phone_and_can_be_tapped(browser: Any, site: tuple[str, Path]) -> None:
    address, _ = site
    phone = Page(browser.new_context(**PHONE))
    _new_review(phone, address, votes=1)
    phone.tab.tap("text=Review images myself")
    phone.tab.wait_for_selector("#work:not([hidden])")
    places = phone.tab.evaluate(
        "[...document.querySelectorAll('.asking button, .foot button')]"
        ".map(b => [b.getBoundingClientRect().bottom, b.offsetHeight])"
    )
    assert all(bottom <= 844 and height >= 44 for bottom, height in places), places
    for question in ("present", "single", "usable"):
        phone.tab.tap(f"[data-question={question}][data-answer=yes]")
    phone.wait_for_counts(1)
    assert phone.troubles == []


@pytest.mark.parametrize(("scheme", "how"), [("light", {}), ("dark", {}), ("light", PHONE)], ids=["light", "dark", "phone"])
def test_everybody_can_use_the_pages(browser: Any, site: tuple[str, Path], scheme: str, how: dict[str, Any]) -> None:
    address, _ = site
    owner = Page(browser.new_context(color_scheme=scheme, **how))
    key = _new_review(owner, address, votes=1)
    owner.tab.click("text=Review images myself")
    owner.tab.wait_for_selector("#work:not([hidden])")
    for path in ("/", "/runs/one", f"/reviews/{key}", f"/review/{key}", "/enter", "/nothing"):
        owner.tab.goto(address + path)
        owner.tab.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true; })")
        assert problems(owner.tab) == [], path
        assert how or focus_is_visible(owner.tab) == [], path


HOSTILE = "<img src=x onerror=document.title='taken'><script>document.title='taken'</script>\"'"


def test_hostile_names_and_comments_run_no_script(browser: Any, tmp_path: Path) -> None:
    root = tmp_path / "runs"
    name = HOSTILE.replace("/", "")
    classes = (HOSTILE, HOSTILE + "2", HOSTILE + "3")
    build(root / name, Plan(classes=classes, model=f"python:{HOSTILE}", prefix=name, skip_reason=HOSTILE))
    here = world(root)
    owner, key = start_review(here, name, votes=1, known=0)
    token = link_of(owner, key, HOSTILE[:80])
    here.database.close()
    with serve_folder(root) as address:
        reviewer = Page(browser.new_context())
        reviewer.tab.goto(f"{address}/enter#{token}")
        reviewer.tab.wait_for_selector("#work:not([hidden])")
        assert "onerror" in reviewer.text("#question")
        reviewer.press("c")
        reviewer.tab.keyboard.type(HOSTILE)
        reviewer.tab.keyboard.press("Escape")
        reviewer.press("u")
        reviewer.press("z")
        reviewer.press("u")
        people = Page(browser.new_context())
        for path in ("/", f"/runs/{quote(name)}", f"/reviews/{key}", f"/reviews/{key}/ties"):
            people.tab.goto(address + path)
            assert "onerror" in people.text("main"), path
            assert people.tab.title() != "taken"
        people.tab.goto(f"{address}/reports/{quote(name)}")
        people.tab.wait_for_url("**/sites/report-*/index.html", timeout=60_000)
        assert people.tab.title() != "taken" and reviewer.tab.title() != "taken"
        assert people.troubles == reviewer.troubles == []


def test_report_comparison_and_board_open_under_the_policy(browser: Any, site: tuple[str, Path]) -> None:
    address, _ = site
    owner = Page(browser.new_context())
    owner.tab.goto(address)
    button = owner.tab.locator("#compare button")
    for box in owner.tab.locator("input[name=run]").all():
        assert button.is_disabled() and button.inner_text() == "Tick 2 to 12 to compare"
        box.check()
    owner.tab.click("text=Compare the ticked ones")
    owner.tab.wait_for_url("**/sites/report-*/index.html", timeout=60_000)
    assert owner.tab.title().startswith("Comparison")
    owner.tab.goto(f"{address}/runs/one")
    owner.tab.click("text=Open the report")
    owner.tab.wait_for_url("**/sites/report-*/index.html", timeout=60_000)
    owner.tab.goto(f"{address}/board")
    owner.tab.wait_for_url("**/sites/board-*/index.html", timeout=60_000)
    assert owner.troubles == []


def test_the_page_of_a_run_under_way_follows_it(browser: Any, site: tuple[str, Path]) -> None:
    address, root = site
    owner = Page(browser.new_context())
    with store.write(root / "live", SPEC, CLASSES, {**PROVENANCE, "images": 40}, chunk_images=8) as writer:
        fill(writer, range(8))
        owner.tab.goto(f"{address}/runs/live")
        assert "8 of 40 images" in owner.text("#progress")
        fill(writer, range(24))
        owner.tab.locator("#progress-words", has_text="24 of 40 images").wait_for(timeout=15_000)
        fill(writer, range(40))
        writer.finish({})
    owner.tab.locator("#progress-state", has_text="finished").wait_for(timeout=15_000)
    assert owner.troubles == []
    shutil.rmtree(root / "live")
