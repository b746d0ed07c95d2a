"""Specifications: read, overridden, and refused with one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from counterfoil import protocols
from counterfoil.core import spec
from counterfoil.core.errors import BadSpec
from counterfoil.core.naming import stable_hash
from counterfoil.core.spec import default_folder
from counterfoil.protocols.base import Execution
from counterfoil.protocols.fmr.wording import departures

PARTS = {"model": "timm:resnet18", "data": "photos", "generator": "pixels:linf", "oracle": "clip:somewhere"}


def test_names_and_mappings_both_name_a_part():
    parsed = protocols.parse({**PARTS, "oracle": {"name": "clip:here", "templates": ["a {class}"]}})
    assert parsed.model.name == "timm:resnet18"
    assert parsed.oracle.options == {"templates": ["a {class}"]}


def test_a_bare_path_is_a_folder_of_images():
    assert protocols.parse(PARTS).data.name == "folder:photos"
    assert protocols.parse({**PARTS, "data": "tensors:x.npz"}).data.name == "tensors:x.npz"


@pytest.mark.parametrize("written", ["photos/", "./photos", "folder:photos/", "folder:./photos//"])
def test_one_folder_has_one_name_however_it_is_written(written):
    assert protocols.parse({**PARTS, "data": written}) == protocols.parse(PARTS)


def test_what_is_written_reads_back_the_same():
    parsed = protocols.parse({**PARTS, "search": {"budget": 3}})
    assert protocols.parse(parsed.model_dump(mode="json")) == parsed


def test_a_step_that_is_not_given_is_left_to_the_generator():
    assert protocols.parse(PARTS).search.step is None
    assert protocols.parse({**PARTS, "search": {"step": 0.5}}).search.step == 0.5


@pytest.mark.parametrize(
    ("written", "control"), [(True, "distance"), ("path", "path"), (False, "none"), ("distance", "distance"), ("none", "none")]
)
def test_the_control_is_matched_by_path_by_distance_or_left_out(written, control):
    assert protocols.parse({**PARTS, "search": {"control": written}}).search.control == control


def test_the_papers_preset_names_all_but_model_and_data():
    parsed = protocols.parse({"preset": "paper", "model": "timm:resnet50", "data": "photos", "device": "cuda"})
    assert parsed.generator == spec.part("vqgan:logs/vqgan_imagenet_f16_16384", ["size=224", "space=before"])
    assert parsed.oracle == spec.part("clip:openai/clip-vit-base-patch32", ["templates=an image of {class}"])
    search = parsed.search
    assert (search.budget, search.step, search.unit, search.norm, search.accept) == (50, 0.001, "absolute", "sign", "label")
    assert (parsed.size, parsed.engine.precision) == (224, "float32")
    assert parsed.model.options == {"crop": "none"}  # of 224 px shown the model sees all
    assert protocols.parse({**parsed.model_dump(mode="json"), "model": {"name": "timm:a", "crop": "own"}}).model.options == {
        "crop": "own"
    }


def test_what_is_given_goes_before_the_preset():
    given = protocols.parse({**PARTS, "preset": "paper", "search": {"budget": 3}})
    assert given.generator.name == "pixels:linf" and given.generator.options == {}
    assert (given.search.budget, given.search.step) == (3, 0.001)
    assert list(departures(given.model_dump(mode="json"))) == ["the generator", "the oracle", "search.budget 3"]


def test_the_default_preset_is_what_is_not_given():
    assert protocols.parse(PARTS).search == spec.SearchSpec()
    assert set(protocols.get("fmr").spec.presets()) == {"default", "paper"}


@pytest.mark.parametrize(
    ("values", "complaint"),
    [
        ({**PARTS, "modle": "x"}, "unknown key 'modle'; did you mean 'model'?"),
        ({**PARTS, "search": {"bugdet": 3}}, "unknown key 'search.bugdet'; did you mean 'budget'?"),
        ({**PARTS, "budget": 3}, "budget is a key of search; write 'search: {budget: …}'"),
        ({**PARTS, "search": {"budget": -1}}, "search.budget: input should be greater than or equal to 0, got -1"),
        ({**PARTS, "search": {"norm": "l7"}}, "search.norm: input should be 'sign', 'l2' or 'raw', got 'l7'"),
        ({key: value for key, value in PARTS.items() if key != "oracle"}, "no oracle given; name one, as in --oracle NAME"),
        ({**PARTS, "painter": "lab:diffusion"}, "painter is for the protocol imagenet-d; leave it out, or choose that"),
        ({**PARTS, "preset": "papers"}, "preset: input should be 'default' or 'paper', got 'papers'"),
        ({}, "no model, data, generator, oracle given; name each, as in --model NAME"),
    ],
)
def test_mistakes_are_named(values, complaint):
    with pytest.raises(BadSpec) as caught:
        protocols.parse(values)
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_that_may_make_no_edit_is_refused():
    parts = dict.fromkeys(("model", "captioner", "editor", "encoder", "oracle"), "x:y")
    lance = {"protocol": "lance", "data": "photos", **parts}
    none = "edit: per_factor is 0 for every factor (weather, domain), so no edit can be made; allow one at least"
    range_ = "edit.per_factor: give 0 to 50 edits, for all factors or by factor as in {adjective: 3}, got "
    for number, complaint in [
        (0, none),
        ({"weather": 0, "domain": 0}, none),
        ({"weather": -1}, range_ + "{'weather': -1}"),
        ("many", range_ + "'many'"),
        ({"wether": 1}, "edit.per_factor: no factor named 'wether'; factors are subject, object"),
    ]:
        with pytest.raises(BadSpec) as caught:
            protocols.parse({**lance, "edit": {"factors": ["weather", "domain"], "per_factor": number}})
        assert str(caught.value).startswith(complaint)
    some = protocols.parse({**lance, "edit": {"factors": ["weather", "domain"], "per_factor": {"weather": 0}}})
    assert (some.edit.most("weather"), some.edit.most("domain")) == (0, 1)


def test_set_finds_the_section_of_a_key():
    values = dict(PARTS)
    protocols.override(values, "budget=25")
    protocols.override(values, "engine.slots=4")
    protocols.override(values, "limit=10")
    protocols.override(values, "generator.epsilon=0.1")
    parsed = protocols.parse(values)
    assert (parsed.search.budget, parsed.engine.slots, parsed.limit) == (25, 4, 10)
    assert parsed.generator.options == {"epsilon": 0.1}


def test_a_section_with_nothing_in_it_has_no_settings():
    values = {**PARTS, "search": None}
    assert protocols.parse(values) == protocols.parse(PARTS)
    protocols.override(values, "budget=3")
    assert protocols.parse(values).search.budget == 3


def test_options_of_the_part_inside_stand_beside_those_of_the_part_around_it():
    parsed = protocols.parse(
        {**PARTS, "model": {"name": "grouped:timm:resnet18", "groups": "imagenet-9", "options": {"side": 96}}}
    )
    assert parsed.model.options == {"groups": "imagenet-9", "options": {"side": 96}}


def test_set_changes_an_option_of_a_part_as_it_is_printed():
    values = protocols.parse(PARTS).model_dump(mode="json")
    protocols.override(values, "generator.epsilon=0.1")
    assert protocols.parse(values).generator.options == {"epsilon": 0.1}


@pytest.mark.parametrize(("text", "complaint"), [("budget", "write KEY=VALUE"), ("bugdet=3", "did you mean 'budget'?")])
def test_set_explains_what_it_cannot_use(text, complaint):
    with pytest.raises(BadSpec, match="--set") as caught:
        protocols.override(dict(PARTS), text)
    assert complaint in str(caught.value)


@pytest.mark.parametrize("text", ["7" * 5000, "0x" + "f" * 5000, "[" * 2000, "{a: " * 2000, "1" + "0" * 30, "{"])
def test_values_that_no_run_could_keep_are_refused_in_one_line(tmp_path, text) -> None:
    with pytest.raises(BadSpec, match=r"--set .*not YAML") as caught:
        protocols.override(dict(PARTS), f"slots={text}")
    assert len(str(caught.value)) < 400 and "sys." not in str(caught.value)
    path = tmp_path / "run.yaml"
    path.write_text(f"slots: {text}")
    with pytest.raises(BadSpec, match=r"run\.yaml: not YAML"):
        spec.read(path)


@pytest.mark.parametrize(
    ("key", "value"), [("engine.slots", 10**10), ("engine.batch_size", 10**10), ("engine.chunk_images", 10**10),
                       ("search.budget", 10**10), ("search.step", float("inf")), ("size", 10**10)]
)  # fmt: skip
def test_numbers_beyond_any_machine_are_refused(key, value) -> None:
    section, _, name = key.rpartition(".")
    with pytest.raises(BadSpec, match=f"{key}: input should be"):
        protocols.parse({**PARTS, section: {name: value}} if section else {**PARTS, name: value})


@pytest.mark.parametrize("text", ["[1, 2]", "a: [", "\x00"])
def test_a_file_that_is_no_specification_is_refused(tmp_path, text):
    path = tmp_path / "run.yaml"
    path.write_text(text)
    with pytest.raises(BadSpec, match=r"run\.yaml"):
        spec.read(path)
    with pytest.raises(BadSpec, match="cannot be read"):
        spec.read(tmp_path / "none.yaml")
    with pytest.raises(BadSpec, match="not a regular file"):
        spec.read(Path("/dev/zero"))


def test_the_folder_depends_on_what_decides_the_numbers_alone():
    one, two = protocols.parse(PARTS), protocols.parse({**PARTS, "engine": {"slots": 3}})
    assert default_folder(one) == default_folder(two)
    assert default_folder(one) != default_folder(protocols.parse({**PARTS, "seed": 1}))


@pytest.mark.parametrize(
    "changes",
    [
        {"engine": {"precision": "bf16"}},
        {"engine": {"compile": True}},
        {"device": "cuda"},
        {"search": {"budget": 3}},
        {"size": 32},
    ],
)
def test_specifications_that_cannot_resume_one_another_have_folders_of_their_own(changes) -> None:
    """On a GPU the default precision is another one, and so is the folder."""
    one, other = protocols.parse(PARTS), protocols.parse({**PARTS, **changes})
    assert default_folder(one) != default_folder(other)


@pytest.mark.parametrize("changes", [{"strict": True}, {"engine": {"batch_size": 3, "chunk_images": 5}}])
def test_specifications_that_can_resume_one_another_share_a_folder(changes) -> None:
    assert default_folder(protocols.parse(PARTS)) == default_folder(protocols.parse({**PARTS, **changes}))


@pytest.mark.parametrize("wrong", [{"executor": "ray", "workers": True}, {"threads": False}])
def test_yes_is_no_number_of_workers(wrong) -> None:
    with pytest.raises(BadSpec, match="workers and threads are numbers"):
        Execution.of(wrong)


def test_precision_on_a_gpu_is_bf16_unless_given_and_is_written_down() -> None:
    values = {"model": "lab:narrow", "data": "lab:wardrobe", "generator": "lab:vqgan", "oracle": "lab:clip"}
    assert protocols.parse(values).engine.precision == "float32"
    assert protocols.parse({**values, "device": "cuda:1"}).engine.precision == "bf16"
    assert protocols.parse({**values, "device": "cuda", "engine": {"batch_size": 4}}).engine.precision == "bf16"
    assert protocols.parse({**values, "device": "cuda", "engine": {"precision": "float32"}}).engine.precision == "float32"
    assert protocols.parse({**values, "engine": {"precision": "bfloat16"}}).engine.precision == "bf16"
    assert protocols.parse(protocols.parse({**values, "device": "cuda"}).model_dump(mode="json")).engine.precision == "bf16"


# Hashes that runs are resumed and repeated by


def test_a_hash_stays_what_it_was_because_runs_are_resumed_and_repeated_by_it() -> None:
    assert stable_hash(0, "dog/1.png") == 12759988907835752339


def test_names_are_told_apart_wherever_they_end() -> None:
    assert len({stable_hash(1, "12"), stable_hash(11, "2"), stable_hash(112), stable_hash("1", "12", "")}) == 4


def test_a_name_that_no_file_can_be_written_with_has_a_hash_too() -> None:
    assert 0 <= stable_hash("broken \udcff name") < 2**64
