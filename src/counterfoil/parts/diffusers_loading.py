"""How pipelines and networks of diffusers are loaded: without its progress bars and reports, and with errors in one line."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from counterfoil.core.errors import BadWeights, CounterfoilError, one_line
from counterfoil.parts import pretrained, weights

INDEX = "model_index.json"


@contextmanager
def loading(name: str, folder: Path | None, *, wanted: str) -> Iterator[None]:
    """One line instead of what the library says. `name` is `kind:FOLDER` or `kind:ORG/NAME`, `wanted` what it should hold."""
    try:
        with quiet():
            if folder is None:
                with weights.hub_access(name.partition(":")[2], INDEX):
                    yield
            else:
                yield
    except CounterfoilError:
        raise
    except Exception as error:  # its errors have no common base
        raise BadWeights(f"{name}: cannot be loaded as {wanted} ({one_line(error)})") from None


@contextmanager
def quiet() -> Iterator[None]:
    """Loading without progress bars and reports, of diffusers and of what it is built on."""
    from diffusers.utils import logging

    level = logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        with pretrained.quiet():
            yield
    finally:
        logging.set_verbosity(level)
        logging.enable_progress_bar()
