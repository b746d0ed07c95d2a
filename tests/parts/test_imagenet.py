from __future__ import annotations

import subprocess
import sys

from counterfoil.parts import imagenet, labels


def test_imagenet_has_a_thousand_classes_told_apart_by_name_and_id() -> None:
    known = imagenet.classes()
    assert len(known) == len({labels.key(entry.name) for entry in known}) == len({entry.wordnet for entry in known}) == 1000
    assert (known[0].wordnet, known[0].name, known[0].lemmas) == ("n01440764", "tench", "tench, Tinca tinca")
    assert known[134].lemmas == known[517].lemmas == "crane"


def test_every_imagenet_class_is_found_by_its_name_and_its_id() -> None:
    names, aliases = imagenet.names_and_aliases()
    assert labels.match(names, names, what="m", aliases=aliases) == list(range(1000))
    assert labels.match([entry.wordnet for entry in imagenet.classes()], names, what="m", aliases=aliases) == list(range(1000))


def test_torchvisions_names_for_imagenet_are_told_apart() -> None:
    from torchvision.models import ResNet18_Weights

    categories = ResNet18_Weights.DEFAULT.meta["categories"]
    names, aliases = labels.recognise(categories)
    assert {old: new for old, new in zip(categories, names, strict=True) if old != new} == {"Cardigan": "Cardigan Welsh corgi"}
    assert aliases is not None
    assert aliases[0] == ("n01440764", "tench, Tinca tinca", "tench", "Tinca tinca")
    assert labels.recognise(categories[::-1]) == (categories[::-1], None)


def test_imagenet_is_recognised_by_any_of_its_spellings() -> None:
    for spelt in ([entry.lemmas for entry in imagenet.classes()], [entry.wordnet for entry in imagenet.classes()]):
        names, aliases = labels.recognise(spelt)
        assert names == [entry.name for entry in imagenet.classes()]
        assert aliases is not None and len(aliases) == 1000
    names, aliases = labels.recognise(["nothing", *[entry.lemmas for entry in imagenet.classes()]])
    assert names[:2] == ["nothing", "tench"] and aliases is not None and len(aliases) == 1001


def test_a_thousand_other_names_are_left_alone() -> None:
    shuffled = [entry.name for entry in imagenet.classes()][::-1]
    assert labels.recognise(shuffled) == (shuffled, None)


def test_names_that_occur_twice_are_numbered() -> None:
    assert labels.recognise(["crane", "boat", "crane"]) == (["crane (number 0)", "boat", "crane (number 2)"], None)


def test_the_table_of_names_is_that_of_timm_and_torchvision() -> None:
    from timm.data.imagenet_info import ImageNetInfo
    from torchvision.models import ResNet18_Weights

    info, known = ImageNetInfo("imagenet-1k"), imagenet.classes()
    assert [entry.wordnet for entry in known] == info.label_names()
    assert [entry.lemmas for entry in known] == info.label_descriptions()
    usual = ResNet18_Weights.DEFAULT.meta["categories"]
    assert {entry.name: other for entry, other in zip(known, usual, strict=True) if entry.name != other} == {
        "Cardigan Welsh corgi": "Cardigan"
    }


def test_no_library_of_models_is_loaded_to_name_a_class() -> None:
    script = (
        "import sys\n"
        "from counterfoil.parts import imagenet, labels\n"
        "assert imagenet.in_words(['n01440764']) == ['tench'] and labels.read_groups('imagenet-9')\n"
        "print([name for name in ('timm', 'torchvision', 'torch') if name in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.strip() == "[]"
