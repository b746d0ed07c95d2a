"""Recipes that train the lab's models: `python -m counterfoil.lab.train NAME`.

One file a family of models. `run.py` says what a run is given, `pool.py` feeds it with scenes, `loop.py` optimises;
`record.py` tells how the model came to be.
"""
