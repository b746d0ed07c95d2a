"""Parts by name and options, built in, of a plug-in, and by one's own function; and what they say of themselves."""

from __future__ import annotations

import hashlib
import subprocess
import sys
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import nn

from counterfoil import evaluate, protocols, store
from counterfoil.core.errors import BadData, BadPart, BadSpec, UnknownName
from counterfoil.parts import contracts, registry
from counterfoil.parts.contracts import Trait, caution_for, describe
from counterfoil.parts.models.modules import GroupedModel, ModuleModel
from counterfoil.parts.models.preprocessing import Preprocessing, square
from counterfoil.parts.oracles.scoring import AcceptanceRule, ClassifierOracle
from counterfoil.testing import check_generator, check_oracle
from tests.fakes import CLASSES
from tests.parts.created import onnx_model, pt2_model
from tests.parts.models import programs
from tests.sources.own import PARTS, part_name
from tests.worlds import FAKES, spec


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


LACKING = {
    "oracle": "bind, judge; see Oracle in counterfoil.parts.contracts",
    "dataset": "classes, __len__, __iter__, load; see Dataset in counterfoil.parts.contracts",
    "captioner": "caption; see Captioner in counterfoil.parts.contracts",
    "rewriter": "rewrite; see Rewriter in counterfoil.parts.contracts",
    "editor": "size, sweep, invert, edit; see Editor in counterfoil.parts.contracts",
    "painter": "paint; see Painter in counterfoil.parts.contracts",
    "encoder": "embed_images, embed_texts; see Embedder in counterfoil.parts.contracts",
    "chat": "answer; see Chat in counterfoil.parts.contracts",
}
SOURCE = """
from tests.sources.own import Bright

class Nothing:
    pass

def whole_class():
    return Bright

def failing():
    raise ValueError("out of luck")

def leaving():
    raise SystemExit(0)
"""
MODELS = """
from dataclasses import dataclass
import torch
from torch import nn
from counterfoil.core.errors import BadData
from counterfoil.parts.models.modules import ModuleModel

NUMBER = 3

@dataclass
class Settings:
    outputs: int = 2

class Net(nn.Module):
    def __init__(self, outputs=2):
        super().__init__()
        self.outputs = outputs
    def forward(self, images):
        return images.mean(dim=(1, 2, 3))[:, None].expand(-1, self.outputs)

def pair(outputs=2):
    return Net(Settings(outputs).outputs), [str(index) for index in range(outputs)]

def model():
    return ModuleModel(Net(), ["x", "y"])

def with_classes():
    net = Net()
    net.classes = ["p", "q"]
    return net

def bare():
    return Net()

def number():
    return 3

def failing():
    raise ValueError("out of\\nluck")

def complaining():
    raise BadData("no data here")
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(SOURCE)
    return tmp_path / "mine.py"


@pytest.fixture
def models(tmp_path: Path) -> Path:
    (tmp_path / "nets.py").write_text(MODELS)
    return tmp_path / "nets.py"


def model(place: str, **options: object):
    return registry.create("model", f"python:{place}", options)


def test_every_role_has_it() -> None:
    assert {*PARTS, "model", "generator"} == set(registry.ROLES) == {*LACKING, "model", "generator"}


@pytest.mark.parametrize("role", PARTS)
def test_what_it_lacks_is_named(role: str, source: Path) -> None:
    with pytest.raises(BadPart) as refused:
        registry.create(role, f"python:{source}:Nothing")
    assert str(refused.value) == f"python:{source}:Nothing: gives a Nothing without {LACKING[role]}"


@pytest.mark.parametrize("role", PARTS)
def test_a_class_is_no_object_of_it(role: str, source: Path) -> None:
    with pytest.raises(BadPart, match=r"gives the class Bright itself; give an object of it, as in Bright\(\)"):
        registry.create(role, f"python:{source}:whole_class")
    with pytest.raises(BadPart, match="the function failed with ValueError: out of luck"):
        registry.create(role, f"python:{source}:failing")
    with pytest.raises(BadPart, match="the function failed with SystemExit: 0"):
        registry.create(role, f"python:{source}:leaving")


def test_options_are_the_arguments() -> None:
    assert registry.create("oracle", part_name("oracle"), {"darkest": 0.3}).darkest == 0.3
    with pytest.raises(BadSpec, match=r"got an unexpected keyword argument 'darkst'; its options are darkest$"):
        registry.create("oracle", part_name("oracle"), {"darkst": 0.3})
    with pytest.raises(BadSpec, match=r"'pens'; it takes no options$"):
        registry.create("painter", part_name("painter"), {"pens": 3})
    dataset = registry.create("dataset", part_name("dataset"), {"count": 5})
    assert len(dataset) == 5 and next(iter(dataset)).source.startswith(f"{part_name('dataset')}[00000000]")


def test_a_whole_run_of_ones_own_parts(tmp_path: Path) -> None:
    run = evaluate(
        f"python:{FAKES}:TinyModel",
        part_name("dataset"),
        generator="brightness:",
        oracle={"name": part_name("oracle"), "darkest": 0.05},
        size=16,
        search={"budget": 2, "step": 0.5},
        out=tmp_path / "run",
    )
    assert run.counts["images"] == 12 and np.isfinite(run.scores["SA"].value)


def test_going_on_after_an_edit_of_the_file_is_told_and_recorded(tmp_path: Path, source: Path) -> None:
    chosen = spec(
        part_name("dataset"), oracle=f"python:{source}:Bright", generator="brightness:", search={"budget": 2, "step": 0.5}
    )
    protocols.run(chosen, tmp_path / "run")
    before = hashlib.sha256(source.read_bytes()).hexdigest()
    told: list[str] = []
    protocols.run(chosen, tmp_path / "run", tell=told.append)
    assert not any("resumed" in line for line in told)
    source.write_text(f"{SOURCE}\n# another version\n")
    protocols.run(chosen, tmp_path / "run", tell=told.append)
    assert any(f"resumed with functions.{source}:Bright" in line for line in told)
    run = store.open_run(tmp_path / "run")
    recorded = [each["functions"][f"{source}:Bright"] for each in (run.provenance, *run.resumed)]
    assert recorded == [before, hashlib.sha256(source.read_bytes()).hexdigest()]


def test_functions_are_found_wherever_a_specification_names_them(source: Path) -> None:
    name = f"{source}:Bright"
    members = {"name": "ensemble:", "members": [f"python:{name}", {"name": "classifier:python:tests.sources.own:Bright"}]}
    found = registry.function_hashes({"oracle": members, "models": [{"name": "lab:narrow"}, "python:absent.py:load"], "seed": 3})
    assert list(found) == [name, "tests.sources.own:Bright"]
    assert found[name] == hashlib.sha256(source.read_bytes()).hexdigest()


@pytest.mark.parametrize(("factory", "classes"), [("pair", ["0", "1"]), ("model", ["x", "y"]), ("with_classes", ["p", "q"])])
def test_a_function_in_a_file_makes_a_model(models: Path, factory: str, classes: list[str]) -> None:
    made = model(f"{models}:{factory}")
    assert list(made.classes) == classes
    assert made.logits(torch.full((1, 3, 4, 4), 0.5)).tolist() == [[0.5, 0.5]]


def test_a_function_in_a_module_beside_makes_a_model(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models.rename(models.with_name("my_nets_for_tests.py"))
    monkeypatch.chdir(models.parent)
    monkeypatch.setattr("sys.path", [entry for entry in __import__("sys").path if entry])
    assert list(model("my_nets_for_tests:model").classes) == ["x", "y"]


@pytest.mark.parametrize(
    ("place", "options", "error", "message"),
    [
        ("{}:nothing", {}, BadPart, "has no function 'nothing'; it has"),
        ("{}:NUMBER", {}, BadPart, "has no function 'NUMBER'"),
        ("{}:bare", {}, BadPart, "a module without class names"),
        ("{}:number", {}, BadPart, "gives a int"),
        ("{}:failing", {}, BadPart, "failed with ValueError: out of luck"),
        ("{}:complaining", {}, BadData, "no data here"),
        ("{}:pair", {"colour": "red"}, BadSpec, r"unexpected keyword argument 'colour'; its options are outputs$"),
        ("nets", {}, BadPart, "write python:package.module:factory"),
        ("nets:", {}, BadPart, "write python:package.module:factory"),
        ("nowhere.py:make", {}, BadPart, "no such file"),
        ("surely_not_installed_anywhere:make", {}, BadPart, "no module of that name"),
        ("{}.broken.py:make", {}, BadPart, r"broken\.py: cannot be imported, ModuleNotFoundError"),
    ],
)
def test_functions_that_make_no_model_are_refused(models: Path, place: str, options: Any, error: type, message: str) -> None:
    Path(f"{models}.broken.py").write_text("import surely_not_installed_anywhere\n")
    with pytest.raises(error, match=message) as caught:
        model(place.replace("{}", str(models)), **options)
    assert "\n" not in str(caught.value)


def test_listing_the_parts_loads_no_heavy_library() -> None:
    heavy = ("timm", "torchvision", "transformers", "open_clip", "diffusers", "huggingface_hub", "datasets", "onnxruntime")
    groups = [f"counterfoil.{role}s" for role in ("model", "oracle", "dataset")]
    entries = [entry for entry in distribution("counterfoil").entry_points if entry.group in groups]
    modules = sorted({entry.module for entry in entries})
    assert len(modules) > 10
    code = f"import sys, {', '.join(modules)}; print([name for name in {heavy!r} if name in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


FOUR = list(CLASSES)


def traits_of(part: Any) -> dict[str, Trait]:
    return {trait.what: trait for trait in describe(part)}


def small_model(preprocessing: Preprocessing | None = None) -> ModuleModel:
    return ModuleModel(nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 4)), FOUR, preprocessing=preprocessing)


def test_an_onnx_file_says_that_imagenets_mean_and_std_are_assumed(tmp_path: Path) -> None:
    file = programs.onnx_file(tmp_path / "m.onnx")
    assumed = traits_of(onnx_model(file, classes=FOUR, size=16))["normalisation"]
    assert str(assumed) == "mean 0.485, 0.456, 0.406; std 0.229, 0.224, 0.225 (assumed)"
    assert assumed.caution == "no mean and std were given, so ImageNet's are assumed; give those it was trained with"
    given = traits_of(onnx_model(file, classes=FOUR, size=16, mean=0, std=1))
    assert str(given["normalisation"]) == "mean 0, 0, 0; std 1, 1, 1 (the options)" and not given["normalisation"].caution
    assert given["outputs"].decided_by == "a look at two outputs"


def test_a_program_says_where_its_size_comes_from(tmp_path: Path) -> None:
    found = traits_of(pt2_model(programs.export_program(tmp_path / "m.pt2"), classes=FOUR, size=16, mean=0, std=1))
    assert found["input"].value == "16×16: shorter side to 16, the centre cropped, bilinear"
    assert found["input"].decided_by == "the options"


@pytest.mark.parametrize(
    ("preprocessing", "seen", "normalisation"),
    [
        (None, "any size, as given", "none: pixels in [0, 1] (assumed)"),
        (
            square(224, mean=[0.5] * 3, std=[0.25] * 3, crop=0.875),
            "224×224: shorter side to 256, the centre cropped, bilinear (its author)",
            "mean 0.5, 0.5, 0.5; std 0.25, 0.25, 0.25 (its author)",
        ),
        (
            Preprocessing(size=(8, 12), resizing="squash"),
            "8×12: squashed to 8×12, bilinear (its author)",
            "none: pixels in [0, 1] (assumed)",
        ),
    ],
)
def test_a_module_says_what_is_done_to_its_images(preprocessing: Preprocessing | None, seen: str, normalisation: str) -> None:
    found = traits_of(small_model(preprocessing))
    assert str(found["input"]) == seen and str(found["normalisation"]) == normalisation
    assert bool(found["normalisation"].caution) == ("assumed" in normalisation)


def test_wrappers_say_what_they_wrap_and_oracles_their_rule() -> None:
    inner = small_model(square(32, mean=[0.0] * 3, std=[1.0] * 3))
    plain = traits_of(ClassifierOracle(inner))
    assert str(plain["rule"]) == "accepts the most probable of the data's classes; no threshold (the default)"
    assert plain["input"] == traits_of(inner)["input"]
    strict = traits_of(ClassifierOracle(inner, acceptance=AcceptanceRule(0.6, 0.1, "abstain")))["rule"]
    assert strict.value.endswith("ahead by 0.1; abstains below a probability of 0.6") and strict.decided_by == "the options"
    grouped = traits_of(GroupedModel(inner, {"insect": ["ant", "bee"], "mammal": ["cat", "dog"]}))
    assert grouped["classes"].value == "insect: 2, mammal: 2" and grouped["input"] == plain["input"]


def test_a_part_made_for_some_classes_is_told_with_a_caution_where_others_are_asked_for() -> None:
    garments = registry.create("model", "lab:narrow")
    trait = traits_of(garments)["made for"]
    assert str(trait) == "images of the lab's garments (its author)"
    assert caution_for(trait, ["Boot", "bag"]) == ""
    strange = caution_for(trait, ["boot", "ant", "bee", "cat", "dog"])
    assert (
        strange
        == "made for images of the lab's garments, not for ant, bee, cat and 1 more; results for other classes mean nothing"
    )
    painted = traits_of(registry.create("painter", "lab:scenes"))["made for"]
    assert caution_for(painted, ["bird"]).startswith("made for sentences about the lab's garments, not for bird;")
    assert caution_for(Trait("rule", "none", caution="take another"), ["bird"]) == "take another"
    assert "made for" in traits_of(ClassifierOracle(garments)) and "made for" in traits_of(registry.create("oracle", "lab:clip"))
    assert traits_of(garments)["normalisation"].decided_by == "the weights"


def test_a_part_that_describes_nothing_gives_its_size() -> None:
    class Sized:
        size = 64

    assert describe(Sized()) == [Trait("input", "64×64", "the part")]
    assert describe(torch.nn.Identity()) == []
