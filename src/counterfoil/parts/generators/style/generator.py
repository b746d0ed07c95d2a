"""Pictures change their style, towards pictures of a folder, and keep their content.

What moves is one of two things. `mix`: how much of each style of the folder is mixed in; shares are never negative and
come to 1 at most, so every picture lies between its own look and the styles'. `statistics`: every channel's mean and
spread on its own, counted in standard deviations over the styles of the folder and at most `reach` of them away from
the picture's own; far more freedom, and looks that no single style has.

A step of 0.1 in `mix` goes a tenth of the way to one style, the one that the search favours most (the conditional gradient of
Frank and Wolfe), so that a step changes a picture as much whatever the number of styles; five steps of 0.2 suit it. In
`statistics` a step of 1 is one standard deviation in every channel.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self, get_args

import torch
from torch import Tensor, nn

from counterfoil.core.errors import BadImage, BadPart, BadSpec
from counterfoil.parts import hub, weights
from counterfoil.parts import images as pictures
from counterfoil.parts.contracts import State
from counterfoil.parts.generators import draws
from counterfoil.parts.generators.latent import must_divide, straight_through
from counterfoil.parts.generators.style import adain

Moves = Literal["mix", "statistics"]
STYLE_SIDE = 256  # pixels; the look of a picture depends little on it


class StyleGenerator:
    """Moves the look of pictures."""

    size = None

    def __init__(
        self,
        encoder: nn.Module,
        decoder: nn.Module,
        looks: Tensor,
        *,
        moves: Moves = "mix",
        reach: float = 2.0,
        account: dict[str, str] | None = None,
    ) -> None:
        """`looks` are the statistics of the styles.  # (K, 2, C)"""
        _check(moves, reach, len(looks))
        self.encoder, self.decoder, self.looks = encoder, decoder, looks
        self.moving: str = moves
        self.step_size = 0.2
        self.reach, self.account = reach, account or {}

    @torch.no_grad()
    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        """The pictures in their own look."""
        height, width = images.shape[-2:]
        if height % adain.FACTOR or width % adain.FACTOR:
            raise BadSpec(f"pictures of {width} by {height} pixels: {must_divide(adain.FACTOR, width)}")
        features = self.encoder(images).float()
        own = adain.statistics(features)
        shape = (len(self.looks),) if self.moving == "mix" else own.shape[1:]
        length = len(self.looks) ** -0.5 if self.moving == "mix" else 1.0
        return {
            "pattern": adain.plain(features, own),
            "own": own,
            self.moving: torch.zeros(len(images), *shape, device=images.device),
            "seed": seeds.clone(),
            "scale": torch.full((len(images),), length, device=images.device),
        }

    def render(self, state: State) -> Tensor:
        """Dress what the pictures show in the look that the state says."""
        own, moved = state["own"], state[self.moving]
        if self.moving == "mix":
            # Row by row, so that a picture's look does not depend on its batch.
            rows = [torch.tensordot(shares, self.looks - look, 1) for shares, look in zip(moved, own, strict=True)]
            look = own + torch.stack(rows)
        else:
            look = own + moved * self.looks.std(0)
        mean, spread = look.unbind(1)
        look = torch.stack([mean, spread.clamp(min=0)], dim=1)
        decoded = self.decoder(adain.dressed(state["pattern"], look))
        return straight_through(decoded.clamp(0, 1), decoded)

    def step(self, state: State, signal: Tensor) -> State:
        """Move the look, no further than it may go."""
        if self.moving == "statistics":
            return {**state, "statistics": (state["statistics"] + signal).clamp(-self.reach, self.reach)}
        way = signal.norm(dim=1, keepdim=True).clamp(max=1)  # (N, 1)
        return {**state, "mix": torch.lerp(state["mix"], _favourite(signal, state["mix"], state["seed"]), way)}

    def to(self, device: torch.device | str) -> Self:
        """Move the networks and the styles."""
        self.encoder.to(device)
        self.decoder.to(device)
        self.looks = self.looks.to(device)
        return self

    def provenance(self) -> dict[str, str]:
        """The networks' weights, the styles and what moves."""
        return {**self.account, "styles": str(len(self.looks)), "moves": self.moving, "reach": str(self.reach)}


def _favourite(signal: Tensor, shares: Tensor, seeds: Tensor) -> Tensor:
    """The look to go towards: all of one style, or none, which is the picture's own.  # (N, K) → (N, K)

    It is the style with the highest signal; of equals, one drawn from the seed. Where the signal is against every style the
    picture goes back to its own look, or, if it has nothing of any yet, towards the style that is lowered least, so that
    every step changes the picture.
    """
    ties = signal == signal.amax(1, keepdim=True)
    order = draws.uniform(seeds, "styles", signal.shape[1]).masked_fill(~ties, -1)
    one = torch.zeros_like(signal).scatter(1, order.argmax(1, keepdim=True), 1.0)
    back = (signal < 0).all(1, keepdim=True) & (shares > 0).any(1, keepdim=True)
    return one.masked_fill(back, 0.0)


def style(
    rest: str,
    *,
    encoder: str,
    decoder: str,
    moves: Moves = "mix",
    reach: float = 2.0,
    styles: int = 64,
    encoder_sha256: str | None = None,
    decoder_sha256: str | None = None,
) -> StyleGenerator:
    """Style transfer (AdaIN) towards the pictures of a folder; the look moves, the content stays.

    `rest` is a folder of style pictures, of which `styles` at most are used, taken evenly. `encoder` and `decoder` are the
    published weights (vgg_normalised.pth, decoder.pth): paths, files on the hub or URLs. `moves` is mix or statistics.
    """
    paths = _style_files(rest, styles)
    _check(moves, reach, len(paths))
    files = {
        "encoder": hub.locate(encoder, sha256=encoder_sha256),
        "decoder": hub.locate(decoder, sha256=decoder_sha256),
    }
    encoding = adain.load(adain.encoder(), files["encoder"])
    decoding = adain.load(adain.decoder(), files["decoder"])
    account = {name: weights.file_sha256(path) for name, path in files.items()}
    account["style pictures"] = _digest(paths)
    return StyleGenerator(encoding, decoding, looks_of(paths, encoding), moves=moves, reach=reach, account=account)


@torch.no_grad()
def looks_of(paths: Sequence[Path], encoder: nn.Module) -> Tensor:
    """The statistics of style pictures.  # → (K, 2, C)"""
    looks = []
    for path in paths:
        try:
            image = pictures.read(path, STYLE_SIDE)
        except BadImage as problem:
            raise BadPart(f"style picture {problem}") from None
        looks.append(adain.statistics(encoder(image[None])))
    return torch.cat(looks)


def _check(moves: Moves, reach: float, styles: int) -> None:
    if moves not in get_args(Moves):
        raise BadSpec(f"moves={moves!r}: what moves is 'mix' or 'statistics'")
    if moves == "statistics" and styles < 2:
        raise BadSpec("moves='statistics' counts in standard deviations over the styles, and there is one; use two or more")
    if not reach > 0:
        raise BadSpec(f"reach={reach}: how far statistics may move is a positive number of standard deviations")


def _style_files(place: str, most: int) -> list[Path]:
    if most < 1:
        raise BadSpec(f"styles={most}: at least one style picture is needed")
    folder = Path(place).expanduser()
    if not place or not folder.is_dir():
        raise BadPart(f"style:{place}: no such folder; write style: and a folder of style pictures")
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix.lower() in pictures.EXTENSIONS)
    if not found:
        raise BadPart(f"style:{place}: no pictures in it")
    count = min(most, len(found))
    return [found[index * len(found) // count] for index in range(count)]


def _digest(paths: Sequence[Path]) -> str:
    total = hashlib.sha256()
    for path in paths:
        total.update(bytes.fromhex(weights.file_sha256(path)))
    return total.hexdigest()
