"""Recipes that train the lab's models: `python -m counterfoil.lab.train NAME`.

One file a family of models. `run.py` says what a run is given, `loop.py` optimises, `pool.py` feeds it with scenes.
"""
