from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import huggingface_hub
import pytest
import torch

from counterfoil.core.errors import BadWeights
from counterfoil.parts import weights

CONTENT = b"some weights"
DIGEST = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, list[str]]]:
    """A local server with one file, and the paths it was asked for; downloads go to a fresh folder."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(200 if self.path.startswith("/models/") else 404)
            self.end_headers()
            self.wfile.write(CONTENT)

        def log_message(self, *given: object) -> None:
            pass

    monkeypatch.setattr(torch.hub, "get_dir", lambda: str(tmp_path / "cache"))
    with HTTPServer(("127.0.0.1", 0), Handler) as listening:
        thread = threading.Thread(target=listening.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}", asked
        listening.shutdown()


def test_a_local_file_is_itself(tmp_path: Path) -> None:
    file = tmp_path / "weights.pt"
    file.write_bytes(CONTENT)
    assert weights.locate(str(file)) == file
    assert weights.locate(str(file), sha256=DIGEST) == file
    with pytest.raises(BadWeights, match="SHA-256 is"):
        weights.locate(str(file), sha256="1" * 64)


@pytest.mark.parametrize("place", ["", "gone.pt", "./some/where/gone.pt", "/some/where/gone.pt", "~/gone/gone.pt", "one/two"])
def test_what_can_be_no_file_is_refused(place: str) -> None:
    with pytest.raises(BadWeights, match="no such file; give a path, a hub file such as"):
        weights.locate(place)


def test_a_folder_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one" / "two" / "three").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadWeights, match="no such file"):
        weights.locate("one/two/three")


def test_a_file_on_the_hub_is_fetched_by_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def download(repository: str, name: str, **options: object) -> str:
        asked.append((repository, name))
        (tmp_path / "file").write_bytes(CONTENT)
        return str(tmp_path / "file")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert weights.locate("someone/network/deep/model.safetensors", sha256=DIGEST) == tmp_path / "file"
    assert asked == [("someone/network", "deep/model.safetensors")]


def test_a_url_is_downloaded_once_and_checked(server: tuple[str, list[str]]) -> None:
    address, asked = server
    for _ in range(2):
        file = weights.locate(f"{address}/models/last.ckpt?dl=1", sha256=DIGEST.upper())
        assert file.name == "last.ckpt"
        assert file.read_bytes() == CONTENT
    assert asked == ["/models/last.ckpt?dl=1"]


@pytest.mark.parametrize("sha256", [None, "abcd1234"])
def test_a_url_without_its_whole_hash_is_refused(server: tuple[str, list[str]], sha256: str | None) -> None:
    address, asked = server
    with pytest.raises(BadWeights, match="only used with its whole SHA-256"):
        weights.locate(f"{address}/models/last.ckpt", sha256=sha256)
    assert not asked


def test_nothing_is_kept_of_a_download_with_another_hash(server: tuple[str, list[str]], tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match=f"SHA-256 is {DIGEST}, expected {'2' * 64}"):
        weights.locate(f"{server[0]}/models/last.ckpt", sha256="2" * 64)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_server_that_has_no_such_file_is_one_line(server: tuple[str, list[str]], tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match=r"gone.pt: cannot be downloaded \(.*Not Found.*\); put the file at .*gone.pt"):
        weights.locate(f"{server[0]}/gone.pt", sha256=DIGEST)
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]
