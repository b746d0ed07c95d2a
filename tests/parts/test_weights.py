"""Weights: files that are read and refused, the hub, and what two parts share."""

from __future__ import annotations

import hashlib
import os
import pickle
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from counterfoil.core.errors import BadPart, BadWeights
from counterfoil.parts import registry, weights
from counterfoil.parts.models.http_model import HttpModel
from counterfoil.parts.models.modules import GroupedModel, ModuleModel
from counterfoil.parts.oracles.ensemble import EnsembleOracle
from counterfoil.parts.oracles.human import human_oracle
from counterfoil.parts.oracles.scoring import ClassifierOracle
from counterfoil.protocols import provenance
from tests.fakes import TinyModel
from tests.parts.created import clip_oracle, hf_model


class Harmful:
    """A pickle that would make a file when loaded."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.target}",)


@pytest.fixture
def state() -> dict[str, torch.Tensor]:
    return {"layer.weight": torch.arange(6.0).reshape(2, 3), "layer.bias": torch.ones(2, dtype=torch.float16)}


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_safetensors_are_loaded(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    save_file(state, tmp_path / "a.safetensors")
    assert same(weights.load_state(tmp_path / "a.safetensors"), state)


@pytest.mark.parametrize("zipped", [True, False])
def test_torch_files_are_loaded(tmp_path: Path, state: dict[str, torch.Tensor], zipped: bool) -> None:
    torch.save(state, tmp_path / "a.pth", _use_new_zipfile_serialization=zipped)
    assert same(weights.load_state(tmp_path / "a.pth"), state)


def test_what_a_file_is_decides_not_its_name(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    save_file(state, tmp_path / "a.bin")
    assert same(weights.load_state(tmp_path / "a.bin"), state)


@pytest.mark.parametrize("key", ["state_dict", "model", "model_state_dict"])
def test_weights_inside_a_training_checkpoint_are_found(tmp_path: Path, state: dict[str, torch.Tensor], key: str) -> None:
    torch.save({key: state, "epoch": 3, "optimizer": {"lr": 0.1}}, tmp_path / "a.pth")
    assert same(weights.load_state(tmp_path / "a.pth"), state)


def test_the_prefix_of_parallel_training_is_taken_off(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    torch.save({f"module.{name}": value for name, value in state.items()}, tmp_path / "a.pth")
    assert same(weights.load_state(tmp_path / "a.pth"), state)


def test_layer_versions_are_kept(tmp_path: Path) -> None:
    module = nn.BatchNorm1d(3)
    torch.save(module.state_dict(), tmp_path / "a.pth")
    assert weights.load_state(tmp_path / "a.pth")._metadata[""]["version"] == 2  # type: ignore[attr-defined]


@pytest.mark.parametrize("writer", ["torch", "torch legacy", "pickle"])
def test_a_pickle_that_runs_code_is_refused_and_not_run(tmp_path: Path, writer: str) -> None:
    file, trace = tmp_path / "model.pth", tmp_path / "ran"
    if writer == "pickle":
        file.write_bytes(pickle.dumps({"weight": Harmful(trace)}))
    else:
        torch.save({"weight": Harmful(trace)}, file, _use_new_zipfile_serialization=writer == "torch")
    with pytest.raises(BadWeights, match=r"model\.pth: refused, it is a pickle .*safetensors\.torch\.save_file"):
        weights.load_state(file)
    assert not trace.exists()


def write_torch(content: Any) -> Callable[[Path], Any]:
    return lambda file: torch.save(content, file)


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"


def truncate(file: Path) -> None:
    save_file({"a": torch.ones(99)}, file) if file.suffix == ".safetensors" else torch.save({"a": torch.ones(99)}, file)
    file.write_bytes(file.read_bytes()[: file.stat().st_size * 2 // 3])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "write", "message"),
    [
        ("a.pth", write_torch(nn.Linear(2, 2)), "refused, it is a pickle"),
        ("a.pt", lambda file: torch.jit.script(nn.Linear(2, 2)).save(str(file)), "refused, it is a TorchScript program"),
        ("a.safetensors", truncate, r"a\.safetensors: cannot be loaded"),
        ("a.pth", truncate, r"a\.pth: cannot be loaded"),
        (
            "a.pth",
            lambda file: file.write_text("<!DOCTYPE html>"),
            "neither safetensors nor a torch file, it begins with b'<!",
        ),
        (
            "a.pth",
            lambda file: file.write_text(POINTER),
            "Git LFS pointer",
        ),
        *(("a.pth", write_torch(content), "save the model's state_dict") for content in ([1, 2], {"epoch": 1}, torch.zeros(2))),
        ("nowhere", lambda file: None, "nowhere: no such weight file"),
    ],
)
def test_files_that_are_no_weights_are_refused(tmp_path: Path, name: str, write: Callable[[Path], Any], message: str) -> None:
    write(tmp_path / name)
    with pytest.raises(BadWeights, match=message):
        weights.load_state(tmp_path / name)


def test_the_hash_is_checked(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    file = tmp_path / "a.safetensors"
    save_file(state, file)
    right = hashlib.sha256(file.read_bytes()).hexdigest()
    assert weights.file_sha256(file) == right
    assert same(weights.load_state(file, right), state)
    assert same(weights.load_state(file, right[:12].upper()), state)
    wrong = "0" * 64
    with pytest.raises(BadWeights, match=f"SHA-256 is {right}, expected {wrong}"):
        weights.load_state(file, wrong)
    with pytest.raises(BadWeights):
        weights.load_state(file, "")


def test_a_folder_gives_its_safest_file(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    torch.save(state, tmp_path / "pytorch_model.bin")
    assert weights.find(tmp_path).name == "pytorch_model.bin"
    save_file(state, tmp_path / "model.safetensors")
    assert weights.find(tmp_path).name == "model.safetensors"


def test_a_folder_with_one_file_of_another_name_gives_that(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    save_file(state, tmp_path / "best.safetensors")
    assert weights.find(tmp_path).name == "best.safetensors"
    save_file(state, tmp_path / "last.safetensors")
    with pytest.raises(BadWeights, match="several weight files"):
        weights.find(tmp_path)


def test_a_name_that_can_only_be_a_path_is_not_taken_for_the_hub(tmp_path: Path) -> None:
    assert weights.local_folder(str(tmp_path)) == tmp_path
    assert weights.local_folder("someone/something") is None
    for name in (str(tmp_path / "nowhere"), "./nowhere", "~/surely/nowhere"):
        with pytest.raises(BadWeights, match="nowhere: no such folder"):
            weights.local_folder(name)


def test_missing_weights_are_named(tmp_path: Path) -> None:
    with pytest.raises(BadWeights, match="holds no weight file"):
        weights.find(tmp_path)


def test_weights_of_another_architecture_are_refused_with_the_names(state: dict[str, torch.Tensor]) -> None:
    module = nn.Sequential(nn.Linear(3, 2))
    with pytest.raises(BadWeights, match=r"a\.pth: .*Sequential: it lacks 0.weight, 0.bias; it also has layer.weight"):
        weights.load_into(module, state, what="a.pth")
    with pytest.raises(BadWeights, match=r"size mismatch for 0\.weight"):
        weights.load_into(module, {"0.weight": torch.zeros(5, 3), "0.bias": torch.zeros(2)}, what="a.pth")


def test_the_fingerprint_changes_with_values_names_shapes_and_types() -> None:
    torch.manual_seed(0)
    module = nn.Linear(4, 3)
    first = weights.fingerprint(module)
    assert weights.fingerprint(nn.Linear(4, 3)) != first
    assert weights.fingerprint(nn.Sequential(module)) != first
    with torch.no_grad():
        module.bias[1] += 1e-6
    assert weights.fingerprint(module) != first
    assert weights.fingerprint(module.to(torch.bfloat16)) != first


def test_weights_that_are_neither_cached_nor_reachable_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(BadWeights, match=r"someone/something: model\.safetensors .*hf download someone/something") as caught:
        weights.hub_file("someone/something")
    assert "\n" not in str(caught.value)


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


NAMES = ["ant", "bee", "cat", "dog"]


def network(seed: int = 0, *, trunk: nn.Module | None = None) -> nn.Sequential:
    """A trunk and a head with weights of their own, unless the trunk is another's."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        own = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        return nn.Sequential(trunk or own, nn.Linear(32, 40))


def model(module: nn.Module) -> ModuleModel:
    return ModuleModel(module, NAMES)


def oracle(module: nn.Module) -> ClassifierOracle:
    return ClassifierOracle(model(module))


def test_other_weights_are_independent() -> None:
    assert provenance.check_independent(model(network(0)), oracle(network(1))) is None
    assert provenance.shared_weights(model(network(0)), oracle(network(1))) == 0


def test_the_model_itself_is_refused_as_an_oracle() -> None:
    with pytest.raises(BadPart, match=r"not independent: the hash of its weights .* choose another, or set force=true"):
        provenance.check_independent(model(network(0)), oracle(network(0)))


def test_with_force_it_is_let_pass_and_noted() -> None:
    noted = provenance.check_independent(model(network(0)), oracle(network(0)), force=True)
    assert noted is not None and noted.endswith("the run was forced")


def test_a_common_trunk_is_found_under_another_head() -> None:
    first = network(0)
    second = network(1, trunk=first[0])
    with pytest.raises(BadPart, match=r"it shares 89% of its weights with the model under test"):
        provenance.check_independent(model(first), oracle(second))


def test_the_same_network_under_other_names_is_found() -> None:
    class Renamed(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.something_else = inner

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            return self.something_else(images)

    assert provenance.same_source(model(network(0)), oracle(Renamed(network(0)))) is None
    assert provenance.shared_weights(model(network(0)), oracle(Renamed(network(0)))) == pytest.approx(1)


def test_weights_that_are_alike_everywhere_do_not_count() -> None:
    def plain(seed: int) -> nn.Module:
        return nn.Sequential(network(seed), nn.LayerNorm(4), nn.Sequential(nn.BatchNorm1d(512), nn.BatchNorm2d(1024)))

    assert provenance.shared_weights(model(plain(0)), oracle(plain(1))) == 0


def test_members_and_wrapped_models_are_looked_into() -> None:
    inside = EnsembleOracle([oracle(network(1)), ClassifierOracle(GroupedModel(model(network(0)), {"a": [0], "b": [1]}))])
    with pytest.raises(BadPart, match="not independent"):
        provenance.check_independent(model(network(0)), inside)
    assert provenance.check_independent(model(network(2)), inside) is None
    plain = TinyModel(seed=4)
    assert provenance.shared_weights(plain, EnsembleOracle([oracle(network(1)), ClassifierOracle(plain)])) > 0.2


def test_a_clip_under_test_may_not_judge_itself(clip_folder: Path) -> None:
    tested = hf_model(str(clip_folder), classes=NAMES)
    with pytest.raises(BadPart, match="the hash of its weights"):
        provenance.check_independent(tested, clip_oracle(str(clip_folder)))
    trunk = nn.Sequential(tested.encoder.model.vision_model)  # type: ignore[union-attr]
    assert provenance.shared_weights(model(trunk), clip_oracle(str(clip_folder))) == pytest.approx(1)


def test_one_endpoint_is_one_model() -> None:
    def http_model(url: str) -> HttpModel:
        return registry.create("model", url, {"classes": NAMES})

    first: Any = http_model("http://host/a")
    with pytest.raises(BadPart, match="its endpoint http://host/a is that of the model"):
        provenance.check_independent(first, ClassifierOracle(http_model("http://host/a")))
    assert provenance.check_independent(first, ClassifierOracle(http_model("http://host/b"))) is None


def test_an_oracle_without_weights_is_independent() -> None:
    assert provenance.check_independent(model(network(0)), human_oracle()) is None
