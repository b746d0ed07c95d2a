"""The names of the tables in which an ImageNet-D run keeps what each model said: the writer and the readers share them."""

from __future__ import annotations

import hashlib
import re


def looks_table(model: str) -> str:
    """The table that holds what a classifier said of every picture."""
    return f"looks-{_short(model)}"


def answers_table(chat: str) -> str:
    """The table that holds what a vision-language model answered."""
    return f"answers-{_short(chat)}"


def _short(name: str) -> str:
    """A name that any file system takes and that tells two parts apart."""
    plain = re.sub(r"[^A-Za-z0-9.]+", "-", name).strip("-")[-40:]
    return f"{plain}-{hashlib.sha256(name.encode()).hexdigest()[:6]}"
