"""`python -m counterfoil.cli`: the same as the command `counterfoil`."""

from counterfoil.cli import main

main()
