"""Parts are found by name, built-in and plug-in alike, and mistakes are explained."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
import torch

from counterfoil.core.errors import BadPart, BadSpec, UnknownName
from counterfoil.parts import contracts, registry
from counterfoil.testing import check_generator, check_oracle


def test_an_installed_plug_in_is_found_and_meets_the_contract():
    generator = registry.create("generator", "brightness:", {"per_step": 0.2})
    assert type(generator).__module__ == "counterfoil_brightness"
    check_generator(generator)
    check_oracle(registry.create("oracle", "daylight:"), ["ant", "bee"])


def test_plug_ins_are_listed_with_their_package_and_summary():
    rows = {row.kind: row for row in registry.list_parts("generator")}
    assert rows["brightness"].package == "counterfoil-brightness"
    assert rows["brightness"].summary == "Brightens or darkens the whole image."
    assert rows["pixels"].package == "counterfoil"


def test_a_near_miss_is_suggested():
    with pytest.raises(UnknownName, match=r"no generator named 'pixel'\. Did you mean 'pixels'\? 'counterfoil list generators'"):
        registry.create("generator", "pixel:linf")


@pytest.mark.parametrize(
    ("role", "name", "hint"),
    [
        ("model", "resnet50", "A name begins with its kind, as in 'timm:resnet50'."),
        ("model", "nets/mine.py", "as in 'python:nets/mine.py:FUNCTION'."),
        ("model", "mine.onnx", "as in 'onnx:mine.onnx'."),
        ("generator", "mine.onnx", "A name begins with its kind and a colon."),
        ("model", "tim:resnet50", "Did you mean 'timm'?"),
    ],
)
def test_a_name_without_its_kind_is_shown_with_it(role, name, hint):
    with pytest.raises(UnknownName) as caught:
        registry.create(role, name)
    assert hint in str(caught.value)


def test_parts_are_listed_without_importing_them(entries, tmp_path, monkeypatch):
    (tmp_path / "foggy.py").write_text('import missing_thing\n\ndef fog(rest):\n    """Fog.\n\n    More."""\n')
    monkeypatch.syspath_prepend(tmp_path)
    entries.append(_Entry("fog", "foggy:fog"))
    assert registry.list_parts("generator")[0] == registry.ListedPart("fog", "?", "Fog.")


def test_an_unknown_option_is_told_with_those_there_are():
    with pytest.raises(BadSpec, match=r"unexpected keyword argument 'speed'; its options are per_step"):
        registry.create("generator", "brightness:", {"speed": 1})


@pytest.mark.parametrize(
    "options", [{"options": {"size": 32}, "margin": 0.1}, {"size": 32, "margin": 0.1}], ids=["under options", "next to its own"]
)
def test_a_part_around_another_hands_its_options_on(options, tmp_path):
    made = tmp_path / "made.py"
    made.write_text(
        "import torch\n\ndef load(size=8):\n    head = torch.nn.Linear(3 * size**2, 2)\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), head), ['ant', 'bee']\n"
    )
    oracle = registry.create("oracle", f"classifier:python:{made}:load", options)
    assert oracle.bind(["ant", "bee"]).judge(torch.rand(2, 3, 32, 32), torch.tensor([0, 1])).scores.shape == (2,)


def test_options_of_a_part_around_nothing_may_stand_under_options():
    assert registry.create("generator", "brightness:", {"options": {"per_step": 0.2}}).per_step == 0.2


def test_an_unknown_role_is_refused():
    with pytest.raises(UnknownName, match="no role named 'engine'"):
        registry.list_parts("engine")


class _Entry:
    def __init__(self, name, value, load=None):
        self.name, self.value, self.dist, self._load = name, value, None, load

    def load(self):
        return self._load()


@pytest.fixture
def entries(monkeypatch):
    """Lets a test decide what is registered."""
    found = []
    monkeypatch.setattr(registry, "entry_points", lambda group: found)
    registry._kinds.cache_clear()
    yield found
    registry._kinds.cache_clear()


def test_one_name_for_two_parts_is_an_error(entries):
    entries += [_Entry("fog", "one:Fog"), _Entry("fog", "two:Fog")]
    with pytest.raises(BadPart, match=r"two packages register the generator 'fog': one:Fog and two:Fog"):
        registry.create("generator", "fog:")


def test_an_error_inside_a_plug_in_is_not_read_as_an_unknown_name(entries):
    def broken():
        raise ImportError("No module named 'missing_thing'")

    entries.append(_Entry("fog", "one:Fog", broken))
    with pytest.raises(BadPart, match=r"'fog' \(one:Fog\) cannot be imported: ImportError: No module named 'missing_thing'"):
        registry.create("generator", "fog:")


def test_a_part_that_fails_to_load_is_one_line(entries):
    def factory(rest):
        raise RuntimeError("first line\nsecond line")

    entries.append(_Entry("fog", "one:fog", lambda: factory))
    with pytest.raises(BadPart) as caught:
        registry.create("generator", "fog:x")
    assert str(caught.value) == "generator 'fog:x' could not be loaded: RuntimeError: first line second line"


@dataclass(frozen=True)
class FogOptions:
    density: float = 0.5
    layers: int = 1
    colour: Literal["grey", "white"] = "grey"


def fog(rest: str, options: FogOptions) -> tuple[str, FogOptions]:
    return rest, options


@pytest.fixture
def foggy(entries):
    entries.append(_Entry("fog", "one:fog", lambda: fog))


def test_a_dataclass_of_options_is_built_from_the_options_given(foggy):
    assert registry.create("generator", "fog:x", {"density": 1, "colour": "white"}) == ("x", FogOptions(1.0, colour="white"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"speed": 1}, "generator 'fog:x': got an unexpected keyword argument 'speed'; its options are density, layers, colour"),
        (
            {"layers": 1.5},
            "generator 'fog:x': layers: input should be a valid integer, got a number with a fractional part, got 1.5",
        ),
        ({"density": float("inf")}, "generator 'fog:x': density: input should be a finite number, got inf"),
        ({"density": "thick"}, "generator 'fog:x': density: input should be a valid number, unable to parse"),
        ({"colour": "pink"}, "generator 'fog:x': colour: input should be 'grey' or 'white', got 'pink'"),
    ],
)
def test_options_that_do_not_fit_their_dataclass_are_one_line(foggy, options, message):
    with pytest.raises(BadSpec) as caught:
        registry.create("generator", "fog:x", options)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


def test_an_address_keeps_its_scheme(entries, monkeypatch):
    entries += [_Entry("https", "one:fog", lambda: lambda address: address)]
    assert registry.create("generator", "https://host/path") == "https://host/path"


def test_a_part_that_ends_the_process_is_an_error(entries):
    def factory(rest):
        raise SystemExit(0)

    entries.append(_Entry("fog", "one:fog", lambda: factory))
    with pytest.raises(BadPart, match="'fog:x' could not be loaded: SystemExit: 0"):
        registry.create("generator", "fog:x")


def test_roles_are_those_with_a_contract():
    assert set(registry.ROLES) == set(contracts.CONTRACTS)


def test_a_name_that_is_not_utf8_is_one_line():
    with pytest.raises(BadSpec, match="the name is not in UTF-8; rename the file or folder") as caught:
        registry.create("dataset", "folder:caf\udce9")
    str(caught.value).encode()  # it can be printed
