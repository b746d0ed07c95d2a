from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from counterfoil import protocols
from counterfoil.core.errors import BadPart, RunFailed
from counterfoil.parts import registry
from counterfoil.parts.models.http_model import HttpModel
from counterfoil.protocols.workspace import Given
from counterfoil.testing import check_model, pictures
from tests.fakes import CLASSES, TinyModel
from tests.parts.endpoint import Endpoint, serve
from tests.worlds import arrays, spec

QUICK: dict[str, Any] = {"backoff": 0.0, "timeout": 5.0}


@pytest.fixture
def endpoint(monkeypatch: pytest.MonkeyPatch) -> Iterator[Endpoint]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve() as found:
        yield found


def http_model(address: str, **options: Any) -> HttpModel:
    return registry.create("model", address, options)


def test_scores_are_those_of_the_model_behind_it(endpoint: Endpoint) -> None:
    model = http_model(endpoint.url, batch=3, **QUICK)
    images = pictures(8, 16)
    assert torch.allclose(model.logits(images), TinyModel().logits(images), atol=1e-5)
    assert endpoint.posts == [3, 3, 2]
    assert list(model.classes) == list(CLASSES)
    assert model.size == 16
    check_model(model, size=16)


def test_probabilities_are_taken_as_well(endpoint: Endpoint) -> None:
    endpoint.spoil = lambda number, answer: {"probabilities": torch.tensor(answer["logits"]).softmax(1).tolist()}
    images = pictures(4, 16)
    model = http_model(endpoint.url, **QUICK)
    assert torch.allclose(model.logits(images).softmax(1), TinyModel().logits(images).softmax(1), atol=1e-5)


def test_the_endpoint_limits_the_batch(endpoint: Endpoint) -> None:
    endpoint.description["max_batch"] = 2
    http_model(endpoint.url, **QUICK).logits(pictures(5, 16))
    assert endpoint.posts == [2, 2, 1]


def test_names_that_are_given_spare_the_question(endpoint: Endpoint) -> None:
    endpoint.description = {}
    assert list(http_model(endpoint.url, classes=["a", "b", "c", "d"], **QUICK).classes) == ["a", "b", "c", "d"]
    with pytest.raises(BadPart, match=r"does not list its classes \(GET gives \[\]\); give classes"):
        http_model(endpoint.url, **QUICK)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"scores": [[1, 2, 3, 4]]}, r"an answer with the keys \['scores'\], where logits or probabilities is needed"),
        ({"logits": [[1, 2, 3]]}, "3 scores per image, where there are 4 classes"),
        ({"logits": [[1, 2, 3, 4, 5]]}, "5 scores per image, where there are 4 classes"),
        ({"logits": []}, "logits of 0 rows for 1 images"),
        ({"logits": "none"}, "logits of a str for 1 images"),
        ({"logits": [[1, 2, 3, None]]}, "not all finite numbers"),
        ({"logits": [[1, 2, 3, True]]}, "not all finite numbers"),
        ({"logits": [[1, 2, 3, 1e39]]}, "not all finite numbers"),
        ({"probabilities": [[-1, 2, 0, 0]]}, "probabilities outside 0 to 1"),
        ({"probabilities": [[0, 0, 0, 0]]}, "or all of them 0"),
        ({"logits": [[1, 2, 3, 4]], "classes": ["a", "b", "c", "d"]}, "other classes than at first"),
    ],
)
def test_garbage_stops_the_run_in_one_line(endpoint: Endpoint, answer: Any, message: str) -> None:
    model = http_model(endpoint.url, retries=2, **QUICK)
    endpoint.spoil = lambda number, right: answer
    with pytest.raises(RunFailed, match=message) as caught:
        model.logits(pictures(1, 16))
    assert str(caught.value).endswith("finished work is kept, the same command resumes once the endpoint is back")
    assert "\n" not in str(caught.value)


def test_another_version_of_the_model_stops_the_run(endpoint: Endpoint) -> None:
    endpoint.spoil = lambda number, answer: {**answer, "version": "one" if number < 3 else "two"}
    model = http_model(endpoint.url, **QUICK)
    model.logits(pictures(1, 16)), model.logits(pictures(1, 16))
    assert model.provenance()["version"] == "one"
    with pytest.raises(RunFailed, match="version 'two' of the model, where it was 'one'"):
        model.logits(pictures(1, 16))


def test_nobody_at_the_address(endpoint: Endpoint) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with pytest.raises(BadPart, match=rf"http://127\.0\.0\.1:{port}/: .*refused.*, after 2 tries; start the endpoint"):
        http_model(f"http://127.0.0.1:{port}/", retries=1, backoff=0.0)


@pytest.mark.parametrize(
    ("description", "message"),
    [
        ({"classes": ["a", "b"], "size": 0}, "describes itself with size 0"),
        ({"classes": ["a", "b"], "size": 10**9}, "a whole number from 1 to 16384 is needed"),
        ({"classes": ["a", "b"], "max_batch": "four"}, "max_batch 'four'"),
        ({"classes": "ab"}, "does not list its classes"),
    ],
)
def test_a_description_that_cannot_be_used_is_one_line(endpoint: Endpoint, description: Any, message: str) -> None:
    endpoint.description = description
    with pytest.raises(BadPart, match=message):
        http_model(endpoint.url, **QUICK)


BREAKS: dict[str, tuple[Callable[[int, Any], Any], str]] = {
    "garbage": (lambda number, answer: b"<html>sorry</html>", "an answer: not JSON"),
    "gone": (lambda number, answer: (503, b"", {}), "status 503"),
}


@pytest.mark.parametrize("kind", BREAKS)
def test_a_run_pauses_when_the_endpoint_breaks_and_goes_on_later(endpoint: Endpoint, tmp_path: Path, kind: str) -> None:
    spoil, message = BREAKS[kind]
    data = f"tensors:{arrays(tmp_path / 'data.npz', 16)}"
    model = {"name": f"python:{Path(__file__).parents[2] / 'fakes.py'}:TinyModel", "differentiable": False}
    small = {"slots": 4, "chunk_images": 4}
    whole = protocols.run(spec(data, model=model, engine=small), tmp_path / "whole")
    remote, given = spec(data, model=endpoint.url, engine=small), Given({"model": http_model(endpoint.url, retries=1, **QUICK)})
    broken = len(endpoint.posts) + 30
    endpoint.spoil = lambda number, answer: answer if number < broken else spoil(number, answer)
    with pytest.raises(RunFailed, match=message) as caught:
        protocols.run(remote, tmp_path / "run", given=given)
    assert caught.value.exit_code == 1
    endpoint.spoil = lambda number, answer: answer
    kept = {file.name: file.read_bytes() for file in (tmp_path / "run" / "trials").glob("*.parquet")}
    assert kept and not (tmp_path / "run" / "results.json").exists()
    resumed = protocols.run(remote, tmp_path / "run", given=Given({"model": http_model(endpoint.url, retries=1, **QUICK)}))
    assert kept == {name: (tmp_path / "run" / "trials" / name).read_bytes() for name in kept}
    assert resumed.results["FMR"] == whole.results["FMR"]
    assert resumed.results["SA"] == whole.results["SA"]


def test_the_server_in_the_documentation_keeps_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    text = (Path(__file__).parents[3] / "docs" / "howto" / "http-model.md").read_text()
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[-1].replace('("127.0.0.1", 8000)', '("127.0.0.1", 0)')
    names: dict[str, Any] = {}
    exec(code.replace("ThreadingHTTPServer((", "server = ThreadingHTTPServer((").replace(".serve_forever()", ""), names)
    names["Model"].log_message = lambda *arguments: None
    with names["server"] as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        model = http_model(f"http://127.0.0.1:{server.server_port}/", **QUICK)
        assert model.logits(torch.stack([torch.zeros(3, 8, 8), torch.ones(3, 8, 8)])).argmax(1).tolist() == [0, 1]
        check_model(model, size=16)
        server.shutdown()
        thread.join()
