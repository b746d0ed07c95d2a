"""The two codebooks of VQGAN: the nearest code, and the most probable one (Gumbel).

On a CPU pictures are quantised one at a time. The table of distances from every cell to every code is then that of one picture
(16 MB for 256 cells and 16,384 codes) and not of the batch, and a picture's codes do not depend on its batch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from counterfoil.parts.fast.codes import first_least, first_of_equals, nearest_codes
from counterfoil.parts.fast.dtypes import float32


class NearestCodes(nn.Module):
    """Every latent becomes the code nearest to it."""

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(count, width)

    def forward(self, latents: Tensor) -> Tensor:
        """The codes of latents.  # (N, D, h, w) → (N, D, h, w)"""
        return _look_up(self.embedding.weight, self.indices(latents))

    def indices(self, latents: Tensor) -> Tensor:
        """The numbers of the codes of latents.  # (N, D, h, w) → (N, h, w)"""
        book = self.embedding.weight  # (K, D)
        with float32(latents.device):
            if latents.is_cuda:  # all pictures at once, by float32 distances
                every = latents.float().permute(0, 2, 3, 1)  # (N, h, w, D)
                return nearest_codes(every.reshape(-1, every.shape[3]), book.float()).view(every.shape[:3])
            lengths = (book**2).sum(1)  # (K,)
            rows = []
            for latent in latents.float():
                cells = latent.flatten(1).T.contiguous()  # (h·w, D)
                # The authors' own sum, in their order. The squares of the cells are the same for every code, but they
                # decide how the distances are rounded, and so which of two codes about as near is taken.
                distances = (cells**2).sum(1, keepdim=True) + lengths - 2 * (cells @ book.T)  # (h·w, K)
                rows.append(first_least(distances))
        return first_of_equals(book.float())[torch.stack(rows)].reshape(len(latents), *latents.shape[2:])


class GumbelCodes(nn.Module):
    """Every latent becomes the code it makes most probable.

    In training codes are drawn, with Gumbel noise; here the most probable one is taken, so that a reconstruction is the
    same every time. A latent and its code are not close to each other, so the gradient is not passed straight from the
    code to the latent but through the expected code (`expected`), as it is in training.
    """

    def __init__(self, count: int, width: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(width, count, 1)
        self.embed = nn.Embedding(count, width)

    def forward(self, latents: Tensor) -> Tensor:
        """The codes of latents.  # (N, D, h, w) → (N, D, h, w)"""
        return _look_up(self.embed.weight, self.indices(latents))

    def indices(self, latents: Tensor) -> Tensor:
        """The numbers of the codes of latents.  # (N, D, h, w) → (N, h, w)"""
        with float32(latents.device):
            return torch.cat([self.proj(latent[None].float()).argmax(1) for latent in latents])

    def expected(self, latents: Tensor) -> Tensor:
        """The mean of all codes, weighted by their probabilities.  # (N, D, h, w) → (N, D, h, w)"""
        with float32(latents.device):
            # The probabilities (32 MB a picture of 32 × 32 cells) are computed again for the gradient, not kept.
            means = [checkpoint(self._expected, latent[None].float(), use_reentrant=False) for latent in latents]
        return torch.cat(means)

    def _expected(self, latent: Tensor) -> Tensor:
        return torch.einsum("nkhw,kd->ndhw", F.softmax(self.proj(latent), dim=1), self.embed.weight)


def _look_up(book: Tensor, indices: Tensor) -> Tensor:
    return F.embedding(indices, book).permute(0, 3, 1, 2).contiguous()  # (N, D, h, w)
