from __future__ import annotations

import hashlib
import os
import pickle
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from counterfoil.core.errors import BadWeights
from counterfoil.parts import weights


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


def test_a_whole_pickled_module_is_refused(tmp_path: Path) -> None:
    torch.save(nn.Linear(2, 2), tmp_path / "model.pth")
    with pytest.raises(BadWeights, match="refused, it is a pickle"):
        weights.load_state(tmp_path / "model.pth")


@pytest.mark.filterwarnings("ignore")
def test_a_torchscript_program_is_refused(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.trace(nn.Linear(2, 2), torch.zeros(1, 2)), str(tmp_path / "model.pt"))
    with pytest.raises(BadWeights, match="refused, it is a TorchScript program"):
        weights.load_state(tmp_path / "model.pt")


@pytest.mark.parametrize("name", ["a.safetensors", "a.pth"])
def test_a_truncated_file_is_refused(tmp_path: Path, state: dict[str, torch.Tensor], name: str) -> None:
    save_file(state, tmp_path / name) if name.endswith("safetensors") else torch.save(state, tmp_path / name)
    content = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(content[: len(content) * 2 // 3])
    with pytest.raises(BadWeights, match=f"{name}: cannot be loaded"):
        weights.load_state(tmp_path / name)


def test_a_page_saved_as_weights_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.pth").write_text("<!DOCTYPE html><html>404</html>")
    with pytest.raises(BadWeights, match=r"a\.pth: neither safetensors nor a torch file, it begins with b'<!DOCTYPE"):
        weights.load_state(tmp_path / "a.pth")


def test_a_git_lfs_pointer_is_called_so(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    with pytest.raises(BadWeights, match="Git LFS pointer"):
        weights.load_state(tmp_path)


@pytest.mark.parametrize("content", [[1, 2], {"epoch": 1}, torch.zeros(2)])
def test_a_file_without_named_tensors_is_refused(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "a.pth")
    with pytest.raises(BadWeights, match="save the model's state_dict"):
        weights.load_state(tmp_path / "a.pth")


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


def test_an_empty_hash_is_not_taken_for_a_match(tmp_path: Path, state: dict[str, torch.Tensor]) -> None:
    save_file(state, tmp_path / "a.safetensors")
    with pytest.raises(BadWeights):
        weights.load_state(tmp_path / "a.safetensors", "")


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
    with pytest.raises(BadWeights, match="nowhere: no such weight file"):
        weights.load_state(tmp_path / "nowhere")


def test_weights_of_another_architecture_are_refused_with_the_names(state: dict[str, torch.Tensor]) -> None:
    module = nn.Sequential(nn.Linear(3, 2))
    with pytest.raises(BadWeights, match=r"a\.pth: .*Sequential: it lacks 0.weight, 0.bias; it also has layer.weight"):
        weights.load_into(module, state, what="a.pth")
    with pytest.raises(BadWeights, match=r"size mismatch for 0\.weight"):
        weights.load_into(module, {"0.weight": torch.zeros(5, 3), "0.bias": torch.zeros(2)}, what="a.pth")


def test_weights_that_fit_are_put_in() -> None:
    module = nn.Linear(3, 2)
    weights.load_into(module, {"weight": torch.ones(2, 3), "bias": torch.zeros(2)}, what="a.pth")
    assert module(torch.ones(1, 3)).tolist() == [[3, 3]]


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


def test_the_fingerprint_is_the_same_for_equal_modules() -> None:
    one, other = nn.BatchNorm2d(3), nn.BatchNorm2d(3)
    assert weights.fingerprint(one) == weights.fingerprint(other)


def test_weights_that_are_neither_cached_nor_reachable_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(BadWeights, match=r"someone/something: model\.safetensors .*hf download someone/something") as caught:
        weights.hub_file("someone/something")
    assert "\n" not in str(caught.value)
