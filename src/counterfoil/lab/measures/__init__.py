"""What is measured of each of the lab's models, one file a kind; `counterfoil.lab.measure` is the command."""
