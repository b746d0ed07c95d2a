"""The ImageNet-D protocol (Zhang, Pan, Kim, Kweon and Mao, 2024): paint objects in nuisances, keep what several models miss.

Prompts are painted; surrogates and the models under test look at every picture; an oracle says whether the object is there;
what enough surrogates miss is kept. People can check what was kept, and vision-language models are asked about it. With
`data` instead of a painter, models are tested on a set that was made before.
"""

from __future__ import annotations

from counterfoil.protocols.imagenet_d.running import run

__all__ = ["run"]
