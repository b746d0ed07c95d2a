"""One thread a test process: the suite runs in two processes, and small tensors gain nothing from more."""

from __future__ import annotations

import os

os.environ.setdefault("HF_HUB_OFFLINE", "1")

import torch

torch.set_num_threads(1)
