"""Weights from a folder, the Hugging Face hub or a URL, read without running anybody's code.

Files are safetensors, or torch files read with `weights_only=True`; any other pickle is refused. Every loader of a part goes
through here, so that a hash can be asked for and an error says which file is wrong and what to do about it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import pickle
import re
import sys
import tempfile
import warnings
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from types import FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from counterfoil.core.errors import BadSpec, BadWeights, CounterfoilError, missing, one_line

State = dict[str, Tensor]

PREFERRED = (
    "model.safetensors",
    "diffusion_pytorch_model.safetensors",
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.safetensors",
    "pytorch_model.bin",
    "diffusion_pytorch_model.bin",
    "open_clip_pytorch_model.bin",
    "model.pth",
)
"""Names that weights have in a model's folder, the safest first."""

_INSIDE = (
    "state_dict",
    "ema_model_state_dict",
    "model_state_dict",
    "model",
    "ema",
    "state_dict_ema",
)  # where training scripts put the weights
_DEEPEST = 6  # parts within parts that are looked into
_NO_PARTS = (type, ModuleType, FunctionType, MethodType, Tensor, str, bytes)  # and what is attached to them is not theirs
PICKLES = (".bin", ".ckpt", ".pt", ".pth", ".pkl")
TIMEOUT = 60.0  # seconds without a byte before a server counts as out of reach
_WRAPPERS = ("module.", "_orig_mod.")  # what parallel training and compilation put before every name


def find(path: str | Path) -> Path:
    """The weight file that `path` is, or that lies in the folder `path`."""
    path = Path(path).expanduser()
    if path.is_file():
        return path
    if not path.is_dir():
        raise BadWeights(f"{path}: no such weight file or folder")
    for name in PREFERRED:
        if (path / name).is_file():
            return path / name
    others = sorted(file for ending in ("safetensors", "pth", "pt", "bin") for file in path.glob(f"*.{ending}"))
    if len(others) == 1:
        return others[0]
    held = f"several weight files ({', '.join(file.name for file in others[:3])}, …)" if others else "no weight file"
    raise BadWeights(f"{path}: holds {held}; name the one to use, or call it {PREFERRED[0]}")


def load_state(path: str | Path, sha256: str | None = None) -> State:
    """The tensors of a weight file by name; refused if it is a pickle of anything else, or has another hash."""
    file = find(path)
    if sha256 is not None:
        check_hash(file, sha256)
    with loading(file):
        content: object = _read(file)
    return _tensors(content, file)


def load_into(module: nn.Module, state: Mapping[str, Tensor], *, what: str) -> None:
    """Put `state` into `module`; every name and shape has to fit."""
    try:
        unfit = module.load_state_dict(state, strict=False)  # shapes are checked all the same
        problems = (("it lacks", unfit.missing_keys), ("it also has", unfit.unexpected_keys))
        found = "; ".join(f"{text} {_few(names)}" for text, names in problems if names)
    except (RuntimeError, ValueError) as error:
        found = one_line(error)
    if found:
        raise BadWeights(f"{what}: the weights are of another architecture than {type(module).__name__}: {found}")


def file_sha256(path: str | Path) -> str:
    """SHA-256 of a file's bytes."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_hash(path: str | Path, sha256: str) -> None:
    """Raise BadWeights unless the file has this SHA-256, or one that begins so if it is given shortened."""
    if not isinstance(sha256, str):  # a specification's digits without quotes are a number
        raise BadSpec(f"sha256 is {sha256!r}, a number; write the hash in quotes, as in sha256='\"12345678…\"'")
    wanted, actual = sha256.strip().lower(), file_sha256(path)
    if len(wanted) < 8 or not actual.startswith(wanted):
        raise BadWeights(f"{path}: SHA-256 is {actual}, expected {wanted}; download the file again or correct the hash")


def fingerprint(module: nn.Module) -> str:
    """SHA-256 over the names, types, shapes and values of a module's parameters and buffers."""
    total = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        if not isinstance(tensor, Tensor):
            continue  # some modules keep plain settings there
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return total.hexdigest()


def modules_of(part: Any) -> Iterator[nn.Module]:
    """The torch modules a part holds, in itself or in the parts it is made of."""
    seen: set[int] = set()
    waiting: list[tuple[Any, int]] = [(part, 0)]
    while waiting:
        held, depth = waiting.pop()
        if id(held) in seen or depth > _DEEPEST or isinstance(held, _NO_PARTS):
            continue
        seen.add(id(held))
        if isinstance(held, nn.Module):
            yield held
        elif isinstance(held, list | tuple):
            waiting.extend((each, depth) for each in held)
        elif isinstance(held, dict):
            waiting.extend((each, depth) for each in held.values())
        elif hasattr(held, "__dict__"):
            waiting.extend((each, depth + 1) for each in vars(held).values())


@contextmanager
def loading(what: str | Path, *, repository: str = "", file: str = "", wanted: str = "") -> Iterator[None]:
    """Let a library load weights: tensors only, also where it asks for more, and quietly.

    Whatever it raises becomes one line that begins with `what`. `file` of the hub's `repository` may have to be fetched for
    it; `wanted` is what the weights are loaded as, for errors.
    """
    try:
        with environment("TORCH_FORCE_WEIGHTS_ONLY_LOAD", "1"), quiet(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except CounterfoilError:
        raise
    except Exception as error:  # the libraries' errors have no common base
        if missing(error):
            raise
        raise _failure(what, error, repository, file, wanted) from None


@contextmanager
def environment(name: str, value: str) -> Iterator[None]:
    """Set a variable of the environment for the block."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name) if before is None else os.environ.update({name: before})


@contextmanager
def quiet() -> Iterator[None]:
    """Without the progress bars, warnings and reports of the libraries that have been imported; errors still come."""
    root = logging.getLogger()
    level, loud = root.level, []
    root.setLevel(max(level, logging.ERROR))
    for name in ("transformers", "diffusers"):
        if (library := sys.modules.get(f"{name}.utils.logging")) is not None:
            bars = getattr(library, "is_progress_bar_enabled", lambda: True)()  # diffusers does not say
            loud.append((library, library.get_verbosity(), bars))
            library.set_verbosity_error()
            library.disable_progress_bar()
    try:
        yield
    finally:
        root.setLevel(level)
        for library, verbosity, bars in loud:
            library.set_verbosity(verbosity)
            if bars:
                library.enable_progress_bar()


def _failure(what: str | Path, error: Exception, repository: str, file: str, wanted: str) -> BadWeights:
    text = one_line(error, 300)
    if isinstance(error, pickle.UnpicklingError) or re.search("weights[_ ]only|TorchScript", text, re.IGNORECASE):
        cause = "a TorchScript program" if "TorchScript" in text else "a pickle that can run code when loaded"
        return BadWeights(
            f"{what}: refused, it is {cause}; where you trust it, save its state_dict() once with "
            f"safetensors.torch.save_file and give that file"
        )
    if "state_dict" in text:
        return BadWeights(f"{what}: the weights are of another architecture: {text}")
    if repository and isinstance(error, OSError | ValueError):  # the hub's own errors are of these two kinds
        from huggingface_hub import constants

        return BadWeights(
            f"{repository}: {file} is not in the cache ({constants.HF_HUB_CACHE}) and not to be had from the hub "
            f"({text[:80]}); where there is a network run 'hf download {repository}' and copy that folder of "
            "the cache here, or give a local folder"
        )
    if wanted:
        return BadWeights(f"{what}: cannot be loaded as {wanted} ({text[:200]})")
    if isinstance(error, OSError):
        return BadWeights(f"{what}: cannot be read ({error.strerror or text[:200]})")
    return BadWeights(f"{what}: cannot be loaded ({text[:200]}); it is damaged or of another kind")


def _read(file: Path) -> object:
    with file.open("rb") as opened:
        head = opened.read(64)
    if head.startswith(b"version https://git-lfs"):
        raise BadWeights(f"{file}: a Git LFS pointer, not the weights themselves; run 'git lfs pull' in its repository")
    if file.suffix == ".safetensors" or head[8:9] == b"{":
        from safetensors.torch import load_file

        return load_file(file)
    if not head.startswith((b"PK", b"\x80")):
        raise BadWeights(f"{file}: neither safetensors nor a torch file, it begins with {head[:12]!r}; download it again")
    if head[0] == 0x80 and head[1] != 2:
        raise pickle.UnpicklingError("torch writes pickles of protocol 2 only")
    return torch.load(file, map_location="cpu", weights_only=True)


def _tensors(content: object, file: Path) -> State:
    inside = content
    if isinstance(inside, Mapping) and not all(isinstance(value, Tensor) for value in inside.values()):
        inside = next((inside[name] for name in _INSIDE if isinstance(inside.get(name), Mapping)), inside)
    if not isinstance(inside, Mapping):
        raise BadWeights(f"{file}: holds a {type(content).__name__}, not named tensors; save the model's state_dict")
    state: State = OrderedDict((str(name), value) for name, value in inside.items() if isinstance(value, Tensor))
    if not state:
        raise BadWeights(f"{file}: holds no tensors; save the model's state_dict")
    for wrapper in _WRAPPERS:
        if all(name.startswith(wrapper) for name in state):
            return {name.removeprefix(wrapper): value for name, value in state.items()}
    if hasattr(inside, "_metadata"):  # layer versions, by which a few modules know an older layout
        state._metadata = inside._metadata  # type: ignore[attr-defined]
    return state


def _few(names: Sequence[Any]) -> str:
    return ", ".join(map(str, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


# Places


def bundle_folder(name: str) -> str:
    """The folder that `package:model` stands for, as in `lab:rewriter`, if an installed package has such models."""
    kind, colon, rest = name.partition(":")
    folders = {entry.name: entry for entry in entry_points(group="counterfoil.folders")} if colon else {}
    return str(folders[kind].load()(rest)) if kind in folders else name


def local_folder(name: str) -> Path | None:
    """The folder called `name`, or None where the name can only be meant for the hub or a library."""
    folder = Path(name).expanduser()
    if name and folder.is_dir():
        return folder
    if name.startswith((".", "/", "~")):
        raise BadWeights(f"{name}: no such folder")
    return None


def hub_file(repository: str, names: Sequence[str] = PREFERRED, *, revision: str | None = None) -> Path:
    """The first of `names` that a hub repository has, from the local cache or downloaded."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    away: Exception | None = None
    with loading(repository, repository=repository, file=names[0]):
        for name in names:
            try:
                # With the hub out of reach, others may still be in the cache; asking the hub again would take half a minute.
                return Path(hf_hub_download(repository, name, revision=revision, local_files_only=away is not None))
            except LocalEntryNotFoundError as error:
                away = away or error
            except EntryNotFoundError:
                if name == names[-1]:
                    raise BadWeights(f"{repository}: has none of the weight files {', '.join(names)}") from None
        if away is not None:
            raise away
    raise BadWeights(f"{repository}: no weight file was asked for")


def hub_folder(name: str, wanted: Sequence[str], *, revision: str | None = None) -> Path:
    """The local folder `name`, or the one into which the `wanted` files of that hub id were downloaded."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    path = Path(name).expanduser()
    if path.is_file():
        if path.suffix in PICKLES:
            raise pickle_refusal(path, Path(wanted[-1]).name)
        raise BadWeights(f"{path}: is a file; give the folder that holds {' and '.join(Path(file).name for file in wanted[-2:])}")
    if name and path.is_dir():
        return path
    with loading(name, repository=name, file=wanted[-1]):
        try:
            return Path(snapshot_download(name, revision=revision, allow_patterns=list(wanted)))
        except HFValidationError:
            raise BadWeights(f"{name!r}: no such folder, and not a hub id such as stabilityai/sd-vae-ft-mse") from None


def locate(place: str, *, sha256: str | None = None) -> Path:
    """A single file: a local path, a file of a hub repository, or a URL, checked if a hash is given.

    `models/last.ckpt` is a file here; `someone/network/model.safetensors` is the file `model.safetensors` of the hub
    repository `someone/network`; `https://…/256x256_diffusion.pt` is downloaded once, and only with its SHA-256 given.
    """
    if place.startswith(("https://", "http://")):
        return _from_url(place, sha256)
    path = Path(place).expanduser()
    if not place or not path.is_file():
        owner, _, rest = place.partition("/")
        name, _, file = rest.partition("/")
        if not owner or not name or not file or place.startswith((".", "/", "~")) or path.is_dir():
            known = "give a path, a hub file such as someone/network/model.safetensors, or a URL"
            raise BadWeights(f"{place!r}: no such file; {known}")
        path = hub_file(f"{owner}/{name}", [file])
    if sha256 is not None:
        check_hash(path, sha256)
    return path


def pickle_refusal(path: Path, name: str) -> BadWeights:
    """The refusal of a pickle, and how to turn it into the file `name`."""
    return BadWeights(
        f"{path}: is a pickle, which can run code when it is read; convert it once where that does no harm: read it with "
        f"torch.load(…, weights_only=True) and write it with safetensors.torch.save_file to {name} in the same folder"
    )


def _from_url(url: str, sha256: str | None) -> Path:
    if sha256 is None or len(sha256.strip()) != 64:
        raise BadWeights(f"{url}: what comes from a URL is only used with its whole SHA-256; give sha256=")
    sha256 = sha256.strip().lower()
    folder = Path(torch.hub.get_dir()) / "counterfoil" / sha256[:16]
    return download(url, folder / (url.partition("?")[0].rstrip("/").rpartition("/")[2] or "weights"), sha256)


def download(url: str, target: Path, sha256: str | None) -> Path:
    """`target`, downloaded if it is not there: next to it and then renamed, so that it is always whole."""
    import httpx2

    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            partial = Path(folder) / target.name
            try:
                with httpx2.stream("GET", url, timeout=TIMEOUT, follow_redirects=True) as answer, partial.open("wb") as file:
                    answer.raise_for_status()
                    for chunk in answer.iter_bytes():
                        file.write(chunk)
            except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
                reason = one_line(error)
                raise BadWeights(f"{url}: cannot be downloaded ({reason}); put the file at {target}, or give its path") from None
            if sha256 is not None:
                check_hash(partial, sha256)
            partial.replace(target)
    if sha256 is not None:
        check_hash(target, sha256)
    return target


def is_cached(repository: str) -> bool:
    """Tell whether a hub repository's files are in the local cache, without asking the hub."""
    from huggingface_hub import scan_cache_dir
    from huggingface_hub.errors import CacheNotFound

    try:
        return any(each.repo_id == repository for each in scan_cache_dir().repos)
    except CacheNotFound:
        return False


def offline() -> bool:
    """Tell whether the hub may not be asked (HF_HUB_OFFLINE)."""
    from huggingface_hub import constants

    return bool(constants.HF_HUB_OFFLINE)
