"""Get files from a folder, the Hugging Face hub or a URL."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path

import torch

from counterfoil.core.errors import BadWeights, one_line
from counterfoil.parts import weights

PICKLES = (".bin", ".ckpt", ".pt", ".pth", ".pkl")
TIMEOUT = 60.0  # seconds without a byte before a server counts as out of reach


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


def hub_file(repository: str, names: Sequence[str] = weights.PREFERRED, *, revision: str | None = None) -> Path:
    """The first of `names` that a hub repository has, from the local cache or downloaded."""
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    away: Exception | None = None
    with weights.loading(repository, repository=repository, file=names[0]):
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
    with weights.loading(name, repository=name, file=wanted[-1]):
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
        return _download(place, sha256)
    path = Path(place).expanduser()
    if not place or not path.is_file():
        owner, _, rest = place.partition("/")
        name, _, file = rest.partition("/")
        if not owner or not name or not file or place.startswith((".", "/", "~")) or path.is_dir():
            known = "give a path, a hub file such as someone/network/model.safetensors, or a URL"
            raise BadWeights(f"{place!r}: no such file; {known}")
        path = hub_file(f"{owner}/{name}", [file])
    if sha256 is not None:
        weights.check_hash(path, sha256)
    return path


def pickle_refusal(path: Path, name: str) -> BadWeights:
    """The refusal of a pickle, and how to turn it into the file `name`."""
    return BadWeights(
        f"{path}: is a pickle, which can run code when it is read; convert it once where that does no harm: read it with "
        f"torch.load(…, weights_only=True) and write it with safetensors.torch.save_file to {name} in the same folder"
    )


def _download(url: str, sha256: str | None) -> Path:
    if sha256 is None or len(sha256.strip()) != 64:
        raise BadWeights(f"{url}: what comes from a URL is only used with its whole SHA-256; give sha256=")
    sha256 = sha256.strip().lower()
    folder = Path(torch.hub.get_dir()) / "counterfoil" / sha256[:16]
    target = folder / (url.partition("?")[0].rstrip("/").rpartition("/")[2] or "weights")
    if not target.is_file():
        _fetch(url, target, sha256)
    weights.check_hash(target, sha256)
    return target


def _fetch(url: str, target: Path, sha256: str) -> None:
    """Download next to the target and rename, so that a broken download is never taken for the file."""
    import httpx2

    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        partial = Path(folder) / "partial"
        try:
            with httpx2.stream("GET", url, timeout=TIMEOUT, follow_redirects=True) as answer, partial.open("wb") as file:
                answer.raise_for_status()
                for chunk in answer.iter_bytes():
                    file.write(chunk)
        except (httpx2.HTTPError, httpx2.InvalidURL, OSError) as error:
            reason = one_line(error)
            raise BadWeights(f"{url}: cannot be downloaded ({reason}); put the file at {target}, or give its path") from None
        found = weights.file_sha256(partial)
        if found != sha256:
            raise BadWeights(f"{url}: SHA-256 is {found}, expected {sha256}; nothing was kept")
        partial.replace(target)


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
