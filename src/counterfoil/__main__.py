"""`python -m counterfoil`: the same as the command, where a package is used without being installed."""

from __future__ import annotations

from counterfoil.cli import main

if __name__ == "__main__":  # processes that a study starts read this file again
    main()
