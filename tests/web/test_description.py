"""The OpenAPI description: it fits what the server does, and nothing sent by it breaks the server."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote, urlencode

import pytest
import schemathesis
from hypothesis import HealthCheck, given, seed, settings
from hypothesis import strategies as st

from .world import World, invited, start_review

EXAMPLES = 20


@pytest.mark.xdist_group("schemathesis")
def test_no_request_that_fits_the_description_breaks_the_server(here: World) -> None:
    owner, key = start_review(here, votes=2, sentinels=0.2)
    ada = invited(here, owner, key, "Ada")
    made = owner.post(f"/api/reviews/{key}/reviewers", {"name": "Ben"}, 201)
    known = {"key": key, "name": "one", "item": 1, "reviewer": made["key"]}
    cookies = dict(owner.browser.cookies)
    schema = schemathesis.openapi.from_asgi("/openapi.json", here.app, headers={"host": "localhost"})
    seen: dict[str, set[int]] = {}
    for found in schema.get_all_operations():
        operation = found.ok()

        @seed(1)
        @settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy(), real=st.booleans(), reviewing=st.booleans())
        def ask(case: Any, real: bool, reviewing: bool) -> None:
            if real:  # what is there, so that more than the first check is reached
                case.path_parameters = {name: known.get(name, value) for name, value in case.path_parameters.items()}
            who = (ada if reviewing else owner).browser.headers
            headers = {name: who[name] for name in ("authorization", "x-form-token") if name in who} | {"host": "localhost"}
            answer = case.call(headers=headers, cookies={} if reviewing else cookies)
            seen.setdefault(f"{case.method} {case.path}", set()).add(answer.status_code)
            assert answer.status_code < 500, answer.text

        ask()
    assert len(seen) >= 17
    reached = [path for path, statuses in seen.items() if statuses & {200, 201, 204}]
    assert len(reached) >= 14, seen


GARBAGE = ["", "\0", "\ud800", "é" * 300, "-1", "1e999", "nan", "99999999999999999999", "<b>", "../..", "%00", "null", "[]"]


@pytest.mark.parametrize("garbage", GARBAGE, ids=range(len(GARBAGE)))
def test_forms_and_pages_take_any_garbage(here: World, garbage: str) -> None:
    owner, key = start_review(here, votes=1, sentinels=0)
    sent = garbage.encode("utf-8", "surrogatepass")
    for path, names in {
        "/enter": ["token"],
        "/reviews": ["run", "votes", "sentinels", "limit", "control"],
        f"/reviews/{key}/reviewers": ["name"],
        f"/reviews/{key}/ties": ["item", "keep"],
        f"/reviews/{key}/verdicts": ["x"],
        f"/reviews/{key}/reviewers/{quote(sent)}/revoke": ["x"],
    }.items():
        for name in names:
            whole = {"run": b"one", "item": b"1", "keep": b"true", name: sent}
            answer = owner.browser.post(
                path, content=urlencode(whole), headers={"content-type": "application/x-www-form-urlencoded"}
            )
            assert answer.status_code < 500, (path, name)
        for kind in ("application/json", "multipart/form-data; boundary=x", "text/plain", "\u00e9/x"):
            answer = owner.browser.post(path, content=sent, headers={"content-type": kind.encode("latin-1")})
            assert answer.status_code < 500, (path, kind)
    for path in (
        "/compare?run=one&run=",
        "/runs/",
        "/reports/",
        "/reviews/",
        "/review/",
        "/sites/",
        "/sites/x/",
        "/static/",
        "/",
    ):
        answer = owner.browser.get(path + quote(sent), headers={"accept": "text/html"})
        assert answer.status_code < 500, path


def test_pages_are_not_described_and_everything_under_api_is(here: World) -> None:
    description = here.browser().get("/openapi.json").json()
    assert all(path.startswith("/api/") for path in description["paths"])
    for path, methods in description["paths"].items():
        for method, operation in methods.items():
            assert operation["description"], (method, path)
            assert "422" in operation["responses"]
