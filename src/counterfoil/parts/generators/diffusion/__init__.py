"""Diffusion models as generators: pictures are noised a little and denoised again under guidance."""
