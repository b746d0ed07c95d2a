"""Cores are shared out so that every worker finds a node."""

from __future__ import annotations

import pytest

from counterfoil.protocols.ray.cluster import cores_per_gpu, living, share_of_cores


@pytest.mark.parametrize(
    ("cores", "workers", "share"),
    [([8], 2, 4), ([4, 4], 1, 4), ([4, 4], 2, 4), ([6, 2], 2, 3), ([64, 4], 3, 21), ([2, 2], 9, 1), ([3], 2, 1)],
)
def test_the_largest_share_with_which_all_workers_find_a_node(cores, workers, share):
    nodes = [(each, 0) for each in cores]
    assert share_of_cores(nodes, workers) == share
    assert sum(each // share for each in cores) >= min(workers, sum(cores))


def test_cores_of_nodes_without_a_gpu_are_no_help_to_those_that_have_some():
    nodes = [(96, 0), (16, 8), (12, 2)]
    assert cores_per_gpu(nodes) == 2
    assert cores_per_gpu([(0, 2)]) == cores_per_gpu([]) == 1


def test_nodes_that_are_gone_do_not_count():
    there = [{"Alive": True, "Resources": {"CPU": 4.0, "GPU": 1.0}}, {"Alive": False, "Resources": {"CPU": 8.0}}, {"Alive": True}]
    assert living(there) == [(4, 1), (0, 0)]
