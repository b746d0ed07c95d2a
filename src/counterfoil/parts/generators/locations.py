"""Where a single weight file is: a local path, a file of a hub repository, or a URL.

`models/last.ckpt` is a file here; `someone/network/model.safetensors` is the file `model.safetensors` of the hub
repository `someone/network`; `https://…/256x256_diffusion.pt` is downloaded once, and only with its SHA-256 given.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import torch

from counterfoil.core.errors import BadWeights, one_line
from counterfoil.parts import weights

TIMEOUT = 60.0  # seconds without a byte before a server counts as out of reach


def locate(place: str, *, sha256: str | None = None) -> Path:
    """The file at `place` on this machine, downloaded first if need be; checked if a hash is given."""
    if place.startswith(("https://", "http://")):
        return _download(place, sha256)
    path = Path(place).expanduser()
    if not place or not path.is_file():
        path = _from_hub(place)
    if sha256 is not None:
        weights.check_hash(path, sha256)
    return path


def _from_hub(place: str) -> Path:
    owner, _, rest = place.partition("/")
    name, _, file = rest.partition("/")
    if not owner or not name or not file or place.startswith((".", "/", "~")) or Path(place).expanduser().is_dir():
        raise BadWeights(f"{place!r}: no such file; give a path, a hub file such as someone/network/model.safetensors, or a URL")
    return weights.from_hub(f"{owner}/{name}", [file])


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
    """Download beside the target and rename, so that a broken download is never taken for the file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=target.parent, suffix=".partial")
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file, urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
            shutil.copyfileobj(answer, file)
        found = weights.file_sha256(partial)
        if found != sha256:
            raise BadWeights(f"{url}: SHA-256 is {found}, expected {sha256}; nothing was kept")
        partial.replace(target)
    except (urllib.error.URLError, OSError) as error:
        reason = one_line(getattr(error, "reason", error))
        raise BadWeights(f"{url}: cannot be downloaded ({reason}); put the file at {target}, or give its path") from None
    finally:
        partial.unlink(missing_ok=True)
