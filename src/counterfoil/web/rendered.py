"""Reports and boards, made when somebody asks, kept as long as the runs stay as they are."""

from __future__ import annotations

import hashlib
import logging
import shutil
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from counterfoil.core.errors import CounterfoilError
from counterfoil.store import runfile
from counterfoil.store.chunks import CONTENTS, RESULTS, numbers

LOG = logging.getLogger("counterfoil.web")

KEPT = 24  # sites on the disk; the oldest goes when there is one more

Make = Callable[[Path], object]


class Sites:
    """Folders of static pages, each under a key that changes with what it shows. One is made at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._making: dict[str, Future[None]] = {}
        self._turn = threading.Lock()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="sites")

    def ready(self, key: str, make: Make) -> bool:
        """Whether the site is there; if not, it is being made from now on. What went wrong is raised to whoever asks next."""
        with self._turn:
            if (self.folder / key).is_dir():
                return True
            under_way = self._making.get(key)
            if under_way is None:
                self._making[key] = self._worker.submit(self._make, key, make)
                return False
            if not under_way.done():
                return False
            del self._making[key]
        under_way.result()
        return (self.folder / key).is_dir()

    def close(self) -> None:
        """Make nothing more."""
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _make(self, key: str, make: Make) -> None:
        draft = self.folder / f"{key}.draft"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            shutil.rmtree(draft, ignore_errors=True)
            make(draft)
            draft.rename(self.folder / key)
            self._sweep()
        except CounterfoilError:
            raise
        except OSError as error:
            raise CounterfoilError(
                f"the page cannot be written ({error.strerror}); free some space or check permissions"
            ) from error
        except Exception as error:  # a run that somebody else wrote may be damaged in any way
            LOG.exception("a page could not be made")
            raise CounterfoilError(f"the pages cannot be made ({type(error).__name__}); a run may be damaged") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)

    def _sweep(self) -> None:
        there = [each for each in self.folder.iterdir() if each.is_dir() and not each.name.endswith(".draft")]
        for old in sorted(there, key=lambda each: each.stat().st_mtime, reverse=True)[KEPT:]:
            shutil.rmtree(old, ignore_errors=True)


def key_of(kind: str, runs: Sequence[Path]) -> str:
    """A name for what `kind` shows of the runs as they are now."""
    seen = hashlib.sha256(kind.encode())
    for run in runs:
        seen.update(str(run).encode("utf-8", "surrogateescape"))
        seen.update(repr(numbers(run)).encode())
        for name in (runfile.NAME, CONTENTS, RESULTS):
            try:
                status = (run / name).stat()
                seen.update(f"{status.st_mtime_ns} {status.st_size}".encode())
            except OSError:
                seen.update(b"-")
    return f"{kind}-{seen.hexdigest()[:24]}"
