"""The lab's parts are found by name, meet the contracts, and come from the package itself."""

from __future__ import annotations

import pytest
import torch

from counterfoil.core.errors import BadData, UnknownName
from counterfoil.parts import registry
from counterfoil.testing import check_generator, check_model, check_oracle
from counterfoil_lab.parts import CLASSIFIERS, GENERATORS


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_classifiers_meet_the_contract(name):
    check_model(registry.create("model", f"lab:{name}"))


@pytest.mark.parametrize("name", GENERATORS)
def test_generators_meet_the_contract(name):
    check_generator(registry.create("generator", f"lab:{name}"), size=64)


def test_the_oracle_meets_the_contract():
    check_oracle(registry.create("oracle", "lab:clip"), list(registry.create("dataset", "lab:wardrobe").classes), size=64)


def test_scenes_do_not_depend_on_how_many_are_drawn():
    few, many = (registry.create("dataset", "lab:wardrobe", {"count": count}) for count in (3, 200))
    for sample in few:
        assert torch.equal(few.load(sample, None), many.load(sample, None))


def test_splits_and_seeds_give_other_scenes():
    first = registry.create("dataset", "lab:wardrobe", {"count": 4})
    for options in ({"split": "tune"}, {"seed": 1}, {"distribution": "full"}):
        other = registry.create("dataset", "lab:wardrobe", {"count": 4, **options})
        assert not torch.equal(first.load(next(iter(first)), None), other.load(next(iter(other)), None))
        assert other.provenance() != first.provenance()


def test_wrong_names_are_explained():
    with pytest.raises(UnknownName, match="did you mean 'narrow'"):
        registry.create("model", "lab:narow")
    with pytest.raises(UnknownName, match="there is lab:wardrobe"):
        registry.create("dataset", "lab:kitchen")
    with pytest.raises(BadData, match="at least 1"):
        registry.create("dataset", "lab:wardrobe", {"count": 0})
