"""Tokens: made at random, kept as hashes, compared in constant time."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from counterfoil.core.errors import UsageError

VARIABLE = "COUNTERFOIL_TOKEN"


def digest(token: str) -> str:
    """What is kept of a token. It has too much chance in it to be guessed from a plain hash."""
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).hexdigest()


def same(one: str, two: str) -> bool:
    """Whether two texts are equal, in a time that does not tell how far they agree."""
    return hmac.compare_digest(one.encode(), two.encode())


def form_token(secret: str) -> str:
    """The token that forms of a session carry, so that other sites cannot send them. It gives nothing of the cookie away."""
    return hmac.new(secret.encode("utf-8", "surrogatepass"), b"form", hashlib.sha256).hexdigest()


def owner_token(state: Path, *, given: Path | None = None) -> str:
    """The owner's token: from a file, from the environment, or made once and kept beside the database."""
    if given is not None:
        return _read(given)
    if os.environ.get(VARIABLE):
        return os.environ[VARIABLE].strip()
    path = state / "token"
    if path.exists():
        return _read(path)
    token = secrets.token_urlsafe(32)
    try:
        state.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(token + "\n")
    except OSError as error:
        raise UsageError(f"{path}: the token cannot be kept ({error.strerror}); set {VARIABLE} or --token-file") from None
    return token


def _read(path: Path) -> str:
    try:
        token = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        raise UsageError(f"{path}: holds no token; write one line of 20 characters or more into it") from None
    if not token:
        raise UsageError(f"{path}: holds no token; write one line of 20 characters or more into it")
    return token
