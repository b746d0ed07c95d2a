"""The command line. Exit codes: 0 done, 1 the run failed, 2 wrong use. An error is one line; --debug shows the traceback."""

from __future__ import annotations

import sys

from counterfoil.errors import CounterfoilError


def main() -> None:
    """Entry point of the `counterfoil` command."""
    from counterfoil.cli.app import app

    debug = "--debug" in sys.argv
    if debug:
        sys.argv.remove("--debug")
    try:
        app()
    except CounterfoilError as error:
        if debug:
            raise
        print(f"counterfoil: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("counterfoil: interrupted; the same command goes on from here", file=sys.stderr)
        sys.exit(130)
