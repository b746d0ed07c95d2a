"""What a cluster's nodes have, and how many cores each of so many workers gets of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Node:
    """One machine of a cluster."""

    cores: int
    gpus: int


def living(described: Sequence[Mapping[str, Any]]) -> list[Node]:
    """The nodes that are there, out of what `ray.nodes` answers."""
    held = [each.get("Resources", {}) for each in described if each.get("Alive")]
    return [Node(int(each.get("CPU", 0)), int(each.get("GPU", 0))) for each in held]


def share_of_cores(nodes: Sequence[Node], workers: int) -> int:
    """Cores for each of `workers`: as many as can be while all of them find a node, none being shared by two."""
    cores = sum(node.cores for node in nodes)
    for share in range(cores // workers, 1, -1):
        if sum(node.cores // share for node in nodes) >= workers:
            return share
    return 1


def cores_beside_a_gpu(nodes: Sequence[Node]) -> int:
    """Cores for each GPU, on the node where they are fewest."""
    return max(1, min((node.cores // node.gpus for node in nodes if node.gpus), default=1))
