"""The command line. Exit codes: 0 done, 1 the run failed, 2 wrong use. An error is one line; --debug shows the traceback."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import warnings
from contextlib import suppress

import typer

from counterfoil.core import process
from counterfoil.core.errors import CounterfoilError, UsageError, one_line, printable

INTERRUPTED = 130
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)  # of a stream: what it goes to takes no more


def main() -> None:
    process.let_threads_sleep()
    process.keep_freed_memory()
    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    else:
        warnings.simplefilter("ignore", FutureWarning)  # libraries' words to programmers, with paths of this machine
        warnings.filterwarnings("ignore", "Dynamo detected a call to a `functools.lru_cache`", UserWarning)  # likewise
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # a terminal that is not UTF-8
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a scheduler's word to end is that of Ctrl-C

    from counterfoil.cli.app import app

    try:
        app()
    except CounterfoilError as error:
        if debug:
            raise
        _complain(str(error))
        sys.exit(error.exit_code)
    except ModuleNotFoundError as error:
        from counterfoil.core.errors import missing

        if debug or (line := missing(error)) is None:
            raise
        _complain(line)
        sys.exit(UsageError.exit_code)
    except OSError as error:
        if debug:
            raise
        sys.exit(_system_error(error))
    except SystemExit as done:
        if done.code == INTERRUPTED:  # typer makes this of Ctrl-C without a word
            _complain("interrupted; what is finished is kept, and the same command resumes it")
        raise


def echo(text: object = "", *, err: bool = False) -> None:
    """Print text, in which names, paths and messages of others may stand."""
    typer.echo(printable(str(text)), err=err)


def _complain(text: str) -> None:
    with suppress(OSError):  # there may be nowhere left to complain to
        echo(f"counterfoil: {' '.join(text.split())}", err=True)


def _system_error(error: OSError) -> int:
    """Complain of what the operating system refused, and answer the exit code."""
    reason = error.strerror or one_line(error)
    if error.filename is None and error.errno in _FULL:
        with suppress(OSError, ValueError):  # or Python would fail to write the rest again as it ends
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        reason = f"the output cannot be written ({reason}); what is finished is kept"
    named = f"{one_line(os.fsdecode(error.filename))}: " if isinstance(error.filename, str | bytes) else ""
    _complain(f"{named}{reason}")
    return UsageError.exit_code if error.errno == errno.ENAMETOOLONG else CounterfoilError.exit_code
