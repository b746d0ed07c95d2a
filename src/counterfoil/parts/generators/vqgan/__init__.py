"""The VQGAN of the authors' own checkpoints (Esser, Rombach and Ommer, 2021), by its original configuration and key names."""
