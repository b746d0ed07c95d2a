"""The classifiers of Table 1's first two rows and the judges that stand in for CLIP: `python:bench/table1/models.py:NAME`."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import timm
import torch.nn.functional as F
from torch import Tensor, nn

from counterfoil.parts import weights as weight_files

WEIGHTS = Path(__file__).parent / "weights"
CIFAR10 = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
DIGITS = tuple(str(digit) for digit in range(10))


class LeNet(nn.Module):
    """LeNet-5 (LeCun et al., 1998) with ReLU and max pooling, on the brightness of 28-pixel images."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(1, 6, 5, padding=2), nn.Conv2d(6, 16, 5)
        self.head = nn.Sequential(nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10))

    def forward(self, images: Tensor) -> Tensor:
        grey = (images.mean(dim=1, keepdim=True) - 0.13) / 0.31
        hidden = F.max_pool2d(F.relu(self.first(grey)), 2)
        hidden = F.max_pool2d(F.relu(self.second(hidden)), 2)  # (N, 16, 5, 5)
        scores: Tensor = self.head(hidden.flatten(1))
        return scores


class Judge(nn.Module):
    """A plain convolutional network with batch normalisation, unlike either model under test."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        widths = (3, width, 2 * width, 4 * width)
        stages = [
            nn.Sequential(_block(before, after), _block(after, after), nn.MaxPool2d(2)) for before, after in pairwise(widths)
        ]
        self.body, self.head = nn.Sequential(*stages), nn.Linear(widths[-1], 10)

    def forward(self, images: Tensor) -> Tensor:
        scores: Tensor = self.head(self.body((images - 0.5) / 0.25).mean(dim=(2, 3)))
        return scores


def lenet(weights: str = str(WEIGHTS / "lenet.safetensors")) -> tuple[nn.Module, tuple[str, ...]]:
    """LeNet on MNIST, trained by `python -m bench.table1.train lenet`."""
    return _load_weights(LeNet(), weights), DIGITS


def mnist_judge(weights: str = str(WEIGHTS / "mnist-judge.safetensors")) -> tuple[nn.Module, tuple[str, ...]]:
    """The judge of MNIST, trained on distorted digits."""
    return _load_weights(Judge(16), weights), DIGITS


def cifar_judge(weights: str = str(WEIGHTS / "cifar-judge.safetensors")) -> tuple[nn.Module, tuple[str, ...]]:
    """The judge of CIFAR-10, trained on distorted images."""
    return _load_weights(Judge(32), weights), CIFAR10


def resnet18(weights: str) -> tuple[nn.Module, tuple[str, ...]]:
    """ResNet-18 for 32 pixels, with the published weights that come with the package pyautoattack (its model_test.pt)."""
    model = timm.create_model("resnet18", num_classes=10)
    model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, padding=1, bias=False), nn.Identity()
    state = weight_files.load_state(weights)
    renamed = {name.replace(".shortcut.", ".downsample.").replace("linear.", "fc."): value for name, value in state.items()}
    weight_files.load_into(model, renamed, what=weights)
    return model, CIFAR10


def _block(before: int, after: int) -> nn.Module:
    return nn.Sequential(nn.Conv2d(before, after, 3, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU())


def _load_weights(module: nn.Module, weights: str) -> nn.Module:
    weight_files.load_into(module, weight_files.load_state(weights), what=weights)
    return module
