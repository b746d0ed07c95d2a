"""The command line. Exit codes: 0 done, 1 the run failed, 2 wrong use. An error is one line; --debug shows the traceback."""

from __future__ import annotations

import sys
import warnings

from counterfoil.core.errors import CounterfoilError

INTERRUPTED = 130


def main() -> None:
    """Entry point of the `counterfoil` command."""
    from counterfoil.cli.app import app

    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    else:
        warnings.simplefilter("ignore", FutureWarning)  # libraries' words to programmers, with paths of this machine
        warnings.filterwarnings("ignore", "Dynamo detected a call to a `functools.lru_cache`", UserWarning)  # likewise
    try:
        app()
    except CounterfoilError as error:
        if debug:
            raise
        print(f"counterfoil: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except SystemExit as done:
        if done.code == INTERRUPTED:  # typer makes this of Ctrl-C without a word
            print("counterfoil: interrupted; what is finished is kept, and the same command goes on from there", file=sys.stderr)
        raise
