"""Images change their style, towards images of a folder, and keep their content.

By adaptive instance normalisation (AdaIN; Huang and Belongie, 2017). The encoder is VGG-19 up to its tenth convolution, the
decoder its mirror image. The content lies in the pattern of the features, the style in each channel's mean and spread. Layers are
numbered as in the published weights, so that those load by name.

The share of each style of the folder moves. Shares are never negative and come to 1 at most, so every image lies between its own
style and those of the folder. A step of 0.1 goes a tenth of the way to one style, the one that the search favours most (the
conditional gradient of Frank and Wolfe), so that a step changes an image as much whatever the number of styles; five steps of 0.2
suit it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor, nn

from counterfoil.core.errors import BadImage, BadPart, BadSpec
from counterfoil.parts import images, weights
from counterfoil.parts.contracts import Movable, State
from counterfoil.parts.generators import draws
from counterfoil.parts.generators.latent import must_divide, straight_through

CHANNELS = 512
FACTOR = 8  # pixels per side for one feature
DOWN = (64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512)  # channels of each convolution; 0 halves the side
UP = (256, 0, 256, 256, 256, 128, 0, 128, 64, 0, 64)  # 0 doubles the side
EPSILON = 1e-5
STYLE_SIDE = 256  # pixels; the style of an image depends little on it


def build_encoder() -> nn.Sequential:
    """A network from images in [0, 1] to features.  # (N, 3, H, W) → (N, 512, H / 8, W / 8)"""
    layers: list[nn.Module] = [nn.Conv2d(3, 3, 1)]  # turns colours into what VGG was trained on
    width = 3
    for channels in DOWN:
        layers += _convolution(width, channels) if channels else [nn.MaxPool2d(2, ceil_mode=True)]
        width = channels or width
    return nn.Sequential(*layers)


def build_decoder() -> nn.Sequential:
    """A network from features to images, about in [0, 1].  # (N, 512, h, w) → (N, 3, 8 h, 8 w)"""
    layers: list[nn.Module] = []
    width = CHANNELS
    for channels in UP:
        layers += _convolution(width, channels) if channels else [nn.Upsample(scale_factor=2, mode="nearest")]
        width = channels or width
    return nn.Sequential(*layers, nn.ReflectionPad2d(1), nn.Conv2d(width, 3, 3))


def _convolution(inputs: int, outputs: int) -> list[nn.Module]:
    return [nn.ReflectionPad2d(1), nn.Conv2d(inputs, outputs, 3), nn.ReLU()]


def load(network: nn.Sequential, file: Path) -> nn.Sequential:
    """The network with the weights of a file, frozen; layers of VGG beyond the network's last one are left out."""
    state = weights.load_state(file)
    numbers = {name: name.partition(".")[0] for name in state}
    kept = {name: state[name] for name, number in numbers.items() if not number.isdecimal() or int(number) < len(network)}
    weights.load_into(network, kept, what=str(file))
    return network.eval().requires_grad_(False)


def statistics(features: Tensor) -> Tensor:
    """Mean and standard deviation of every channel.  # (N, C, h, w) → (N, 2, C)"""
    flat = features.flatten(2)
    return torch.stack([flat.mean(2), (flat.var(2) + EPSILON).sqrt()], dim=1)


def normalise(features: Tensor, content: Tensor) -> Tensor:
    """Features with mean 0 and spread 1 in every channel.  # (N, C, h, w), (N, 2, C)"""
    return (features - content[:, 0, :, None, None]) / content[:, 1, :, None, None]


def restyle(pattern: Tensor, style: Tensor) -> Tensor:
    """The pattern with other means and spreads.  # (N, C, h, w), (N, 2, C)"""
    return pattern * style[:, 1, :, None, None] + style[:, 0, :, None, None]


class StyleGenerator(Movable):
    """Moves the style of images."""

    size = None
    moving = "mix"
    step_size = 0.2

    def __init__(
        self, encoder: nn.Module, decoder: nn.Module, styles: Tensor, *, provenance: dict[str, str] | None = None
    ) -> None:
        """`styles`: their statistics.  # (K, 2, C)"""
        self.encoder, self.decoder, self.styles = encoder, decoder, styles
        self._provenance = provenance or {}

    @torch.no_grad()
    def start(self, images: Tensor, labels: Tensor, seeds: Tensor) -> State:
        height, width = images.shape[-2:]
        if height % FACTOR or width % FACTOR:
            raise BadSpec(f"images of {width} by {height} pixels: {must_divide(FACTOR, width)}")
        features = self.encoder(images).float()
        content, count = statistics(features), len(self.styles)
        return {
            "pattern": normalise(features, content),
            "content": content,
            "mix": torch.zeros(len(images), count, device=images.device),
            "seed": seeds.clone(),
            "scale": torch.full((len(images),), count**-0.5, device=images.device),
        }

    def render(self, state: State) -> Tensor:
        """The images' content in the style that the shares mix."""
        # Row by row, so that an image's style does not depend on its batch.
        pairs = zip(state["mix"], state["content"], strict=True)
        rows = [torch.tensordot(shares, self.styles - content, 1) for shares, content in pairs]
        mean, spread = (state["content"] + torch.stack(rows)).unbind(1)
        decoded = self.decoder(restyle(state["pattern"], torch.stack([mean, spread.clamp(min=0)], dim=1)))
        return straight_through(decoded.clamp(0, 1), decoded)

    def step(self, state: State, signal: Tensor) -> State:
        """Move towards the style that the signal favours."""
        way = signal.norm(dim=1, keepdim=True).clamp(max=1)  # (N, 1)
        return {**state, "mix": torch.lerp(state["mix"], _favourite(signal, state["mix"], state["seed"]), way)}

    def provenance(self) -> dict[str, str]:
        return {**self._provenance, "styles": str(len(self.styles))}


def _favourite(signal: Tensor, shares: Tensor, seeds: Tensor) -> Tensor:
    """The shares to go towards: all of one style, or none, which is the image's own.  # (N, K) → (N, K)

    It is the style with the highest signal; of equals, one drawn from the seed. Where the signal is against every style the
    image goes back to its own style, or, if it has nothing of any yet, towards the style that is lowered least, so that
    every step changes the image.
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
    styles: int = 64,
    encoder_sha256: str | None = None,
    decoder_sha256: str | None = None,
) -> StyleGenerator:
    """Style transfer (AdaIN) towards the images of a folder; the style moves, the content stays.

    `rest` is a folder of style images, of which `styles` at most are used, taken evenly. `encoder` and `decoder` are the
    published weights (vgg_normalised.pth, decoder.pth): paths, files on the hub or URLs.
    """
    paths = _style_files(rest, styles)
    files = {
        "encoder": weights.locate(encoder, sha256=encoder_sha256),
        "decoder": weights.locate(decoder, sha256=decoder_sha256),
    }
    encoding, decoding = load(build_encoder(), files["encoder"]), load(build_decoder(), files["decoder"])
    provenance = {name: weights.file_sha256(path) for name, path in files.items()}
    hashes = b"".join(bytes.fromhex(weights.file_sha256(path)) for path in paths)
    provenance["style images"] = hashlib.sha256(hashes).hexdigest()
    return StyleGenerator(encoding, decoding, read_styles(paths, encoding), provenance=provenance)


@torch.no_grad()
def read_styles(paths: Sequence[Path], encoder: nn.Module) -> Tensor:
    """The statistics of style images.  # → (K, 2, C)"""
    found = []
    for path in paths:
        try:
            image = images.read(path, STYLE_SIDE)
        except BadImage as problem:
            raise BadPart(f"style image {problem}") from None
        found.append(statistics(encoder(image[None])))
    return torch.cat(found)


def _style_files(place: str, most: int) -> list[Path]:
    if most < 1:
        raise BadSpec(f"styles={most}: at least one style image is needed")
    folder = Path(place).expanduser()
    if not place or not folder.is_dir():
        raise BadPart(f"style:{place}: no such folder; write style: and a folder of style images")
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix.lower() in images.EXTENSIONS)
    if not found:
        raise BadPart(f"style:{place}: no images in it")
    count = min(most, len(found))
    return [found[index * len(found) // count] for index in range(count)]
