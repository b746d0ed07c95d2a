"""LANCE, the whole way in a world of squares: stages, rejections, numbers, resuming and correcting by hand."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from counterfoil import protocols, store
from counterfoil.core.errors import BadData, BadRun, BadSpec, UsageError
from counterfoil.core.records import Verdict
from counterfoil.core.spec import PartSpec
from counterfoil.parts import images
from counterfoil.parts.contracts import Caption, Proposals
from counterfoil.parts.datasets.tars import TarOptions, webdataset
from counterfoil.protocols import rescoring
from counterfoil.protocols.lance.results import lance_results
from counterfoil.protocols.workspace import Workspace
from tests.parts.datasets.made import shard
from tests.protocols.lance import world


@pytest.fixture(scope="module")
def finished_run(tmp_path_factory):
    out = tmp_path_factory.mktemp("lance") / "run"
    parts = world.make_parts(dataset=world.Pets(broken=(5,)), captioner=world.Told(mute=("pet-003",)))
    return protocols.run(world.spec(), out, given=parts)


def test_the_leaning_model_loses_on_backgrounds_alone(finished_run):
    results = finished_run.results
    assert results["largest"]["factor"] == "background"
    assert results["factors"]["background"]["drop"]["value"] > 30
    assert results["factors"]["background"]["p_adjusted"] < 0.01
    assert results["factors"]["adjective"]["drop"]["value"] == 0
    assert results["drop_reconstruction"]["value"] == 0
    assert results["SA"]["value"] == 100


def test_every_loss_on_the_way_is_counted_with_its_reason(finished_run):
    funnel = {entry["stage"]: entry for entry in finished_run.results["funnel"]}
    assert funnel["sources"]["turned_away"] == {"unreadable": 1}
    assert funnel["captions"]["turned_away"] == {"no caption": 1}
    assert funnel["edits"]["turned_away"]["no-proposal"] == 22  # weather
    assert funnel["edits"]["turned_away"]["no-op"] == 44
    assert funnel["pictures"]["turned_away"].keys() == {"not edited"}
    assert funnel["oracle"]["turned_away"].keys() == {"class lost"}
    assert finished_run.results["counts"]["skipped"] == 1


class Known:
    """Give the caption that was written down for a image of that name."""

    def caption(self, images, samples):
        words = {sample.image_id: sample.caption for sample in world.Pets()}
        return [Caption(words[sample.image_id.rpartition("/")[2]]) for sample in samples]


def test_sources_may_lie_in_tar_files(tmp_path):
    files = {}
    for sample in world.Pets(12):
        files[f"{sample.image_id}.png"] = images.png(world.draw(sample.caption))
        files[f"{sample.image_id}.cls"] = str(sample.label).encode()
    packed = webdataset(str(shard(tmp_path / "pets.tar", files)), TarOptions(classes=list(world.CLASSES)))
    run = protocols.run(world.spec(), tmp_path / "run", given=world.make_parts(dataset=packed, captioner=Known()))
    plain = protocols.run(world.spec(), tmp_path / "plain", given=world.make_parts(dataset=world.Pets(12)))
    assert run.results["funnel"][:3] == plain.results["funnel"][:3]  # from there on names, as seeds, decide
    assert run.results["SA"] == plain.results["SA"] and run.results["SA"]["n"] == 12
    assert run.results["factors"].keys() == plain.results["factors"].keys()


class Snow:
    """Says the same for every factor."""

    def rewrite(self, requests):
        return [Proposals((re.sub("(beach|forest)", r"snowy \1", request.caption),)) for request in requests]


def test_words_that_change_several_factors_are_one_edit(tmp_path):
    factors = ["background", "adjective", "weather"]
    spec = world.spec(limit=2, edit={"factors": factors, "class_similarity": 1.0})
    protocols.run(spec, tmp_path / "run", given=world.make_parts(rewriter=Snow()), stage="edits")
    found = [(line["factor"], line.get("check"), line.get("reason")) for line in _lines(tmp_path / "run/stages/edits.jsonl")]
    why = "the same edit was proposed before: as an edit of the background"
    assert found == 2 * [("background", None, None), ("adjective", "duplicate", why), ("weather", "duplicate", why)]


def test_trials_hold_words_pictures_and_reasons(finished_run):
    trials = list(finished_run.trials)
    made = next(trial for trial in trials if trial.arm == "edited" and trial.image)
    assert finished_run.picture(made).is_file() and finished_run.picture(made, "clean").is_file()
    assert finished_run.picture(made, "reconstruction").is_file()
    assert made.factor in ("background", "adjective") and made.prompt != made.caption
    refused = [trial for trial in trials if trial.reason.startswith("not edited")]
    assert refused and all(trial.ending == "rejected" and not trial.image and not trial.reconstruction for trial in refused)
    source = next(trial for trial in trials if trial.arm == "source" and trial.ending != "skipped")
    assert source.reconstruction and source.caption.startswith("a photo of")


def test_the_best_of_the_sweep_is_kept(finished_run):
    from counterfoil.store.stages import StageTable

    rows = list(StageTable(finished_run.path / "stages", "quality").passing())
    assert rows
    for row in rows:
        assert row["directional"] == max(each["directional"] for each in row["all"])


def test_another_model_is_scored_on_the_same_pictures(finished_run, tmp_path):
    import shutil

    shutil.copytree(finished_run.path, tmp_path / "run")
    run = store.open_run(tmp_path / "run")
    name = f"python:{world.__file__}:Looking"
    rescoring.score(run, PartSpec(name=name))
    results = lance_results(run, model=name)
    assert results["drop"]["value"] == 0
    with pytest.raises(BadRun, match="no predictions by model 'absent'"):
        lance_results(run, model="absent")


def test_an_oracle_that_abstains_later_takes_no_word_back(tmp_path):
    run = protocols.run(world.spec(limit=8), tmp_path / "run", given=world.make_parts())
    before = run.results["counts"]
    made = [trial.trial_id for trial in run.trials if trial.arm == "edited" and trial.image]
    run.append(verdicts=[Verdict(name, "made", "object:sure", None, 0.0, -1) for name in made])
    assert run.results["counts"] == before
    run.append(verdicts=[Verdict(name, "made", "object:sure", False, 0.0, -1) for name in made])
    assert run.results["counts"]["rejected"] == len(made)


def test_the_distance_of_a_set_says_whose_edits_it_is_of_once_another_oracle_decides(tmp_path):
    run = protocols.run(world.spec(limit=8), tmp_path / "run", given=world.make_parts())
    own = run.results["set"]["frechet_note"]
    made = [trial for trial in run.trials if trial.arm == "edited" and trial.image]
    run.append(verdicts=[Verdict(each.trial_id, "made", "human:", True, 1.0, each.label) for each in made])
    assert run.results["set"]["frechet_note"] == own
    said = f"of the {run.results['counts']['accepted']} edits that object:sure accepted when they were made"
    assert lance_results(run, oracle="human:")["set"]["frechet_note"].endswith(said)


def test_two_models_are_tested_on_one_set_of_edits(tmp_path):
    other = f"python:{world.__file__}:Looking"
    parts = world.make_parts()
    run = protocols.run(world.spec(others=[other], limit=8), tmp_path / "run", given=parts)
    models = {each.model for each in run.predictions()}
    assert models == {"python:here:Leaning", other}
    assert parts.parts["editor"].inverted == 8


def test_a_further_model_that_was_trained_anew_does_not_take_the_place_of_the_one_that_was_tested(tmp_path):
    class Anew(world.Looking):
        def provenance(self):
            return {"weights": "e" * 64}

    file = tmp_path / "first.py"
    file.write_text(
        "from tests.protocols.lance import world\n\n\nclass First(world.Looking):\n"
        "    def provenance(self):\n        return {'weights': 'd' * 64}\n"
    )
    name = f"python:{file}:First"
    run = protocols.run(world.spec(limit=2, others=[name]), tmp_path / "run", given=world.make_parts())
    with pytest.raises(UsageError, match="with other weights"):
        rescoring.score(run, PartSpec(name=name), built=Anew())


@pytest.mark.parametrize("batch", [1, 64])
def test_results_do_not_depend_on_the_batch(tmp_path, batch):
    runs = [
        protocols.run(
            world.spec(limit=8, engine={"batch": size, "workers": size % 3 + 1}), tmp_path / str(size), given=world.make_parts()
        )
        for size in (3, batch)
    ]
    assert (runs[0].path / "results.json").read_bytes() == (runs[1].path / "results.json").read_bytes()
    for name in ("captions", "edits", "quality", "predictions"):
        assert len({(run.path / "stages" / f"{name}.jsonl").read_bytes() for run in runs}) == 1


def test_a_run_stops_after_a_stage_and_goes_on(tmp_path):
    told: list[str] = []
    first = protocols.run(world.spec(limit=6), tmp_path / "run", given=world.make_parts(), stage="edits", tell=told.append)
    assert first.results is None
    assert told[-1] == "stopped after the stage 'edits'; the same command without --stage resumes it"
    parts = world.make_parts()
    run = protocols.run(world.spec(limit=6), tmp_path / "run", given=parts)
    assert parts.parts["captioner"].asked == [] and parts.parts["rewriter"].asked == []
    whole = protocols.run(world.spec(limit=6), tmp_path / "whole", given=world.make_parts())
    assert (run.path / "results.json").read_bytes() == (whole.path / "results.json").read_bytes()


def _lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def _put(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_caption_corrected_by_hand_redoes_what_depends_on_it_alone(tmp_path):
    out = tmp_path / "run"
    protocols.run(world.spec(limit=8), out, given=world.make_parts())
    lines = _lines(out / "stages" / "captions.jsonl")
    lines[2]["caption"] = lines[2]["caption"].replace("beach", "road").replace("forest", "road")
    _put(out / "stages" / "captions.jsonl", lines)
    parts = world.make_parts()
    run = protocols.run(world.spec(limit=8), out, given=parts)
    assert {request.caption for request in parts.parts["rewriter"].asked} == {lines[2]["caption"]}
    assert parts.parts["editor"].inverted == 1
    trials = {trial.trial_id: trial for trial in run.trials}
    assert len(trials) == sum(1 for _ in run.trials)  # the old ones are gone
    assert trials[f"{lines[2]['id']}#source"].caption == lines[2]["caption"]


def test_what_was_said_later_goes_with_the_pictures_that_it_was_said_of(tmp_path):
    out, name, told = tmp_path / "run", f"python:{world.__file__}:Looking", []
    run = protocols.run(world.spec(limit=8), out, given=world.make_parts())
    rescoring.score(run, PartSpec(name=name))
    before = {each.trial_id: each for each in run.predictions(name) if each.picture == "made"}
    assert list(
        protocols.run(world.spec(limit=8), out, given=world.make_parts()).predictions(name)
    )  # nothing changed, nothing goes
    lines = _lines(out / "stages" / "captions.jsonl")
    lines[2]["caption"] = lines[2]["caption"].replace("beach", "road").replace("forest", "road")
    _put(out / "stages" / "captions.jsonl", lines)
    run = protocols.run(world.spec(limit=8), out, given=world.make_parts(), tell=told.append)
    after = {each.trial_id: each for each in run.predictions(name) if each.picture == "made"}
    gone = {trial_id for trial_id in before if trial_id.startswith(lines[2]["id"])}
    assert gone and after == {trial_id: each for trial_id, each in before.items() if trial_id not in gone}
    assert told[-1] == (
        f"dropped later answers about images that have changed or are gone ({len(gone)} by {name}); "
        "ask again with 'counterfoil score'"
    )


def test_the_words_of_an_edit_are_those_of_its_captions_after_a_correction(tmp_path):
    out = tmp_path / "run"
    protocols.run(world.spec(limit=4), out, given=world.make_parts(), stage="edits")
    first, *others = _lines(out / "stages" / "edits.jsonl")
    added = {"of": first["of"], "factor": "background", "edited": first["caption"].replace("on a beach", "under a tree")}
    corrected = {**first, "edited": first["caption"].replace("beach", "roof")}
    _put(out / "stages" / "edits.jsonl", [corrected, *others, added])
    run = protocols.run(world.spec(limit=4), out, given=world.make_parts())
    values = {trial.prompt: trial.value for trial in run.trials}
    assert values[corrected["edited"]] == "roof" and values[added["edited"]] == "under a tree"
    assert _lines(out / "stages" / "edits.jsonl")[0]["removed"] == "beach"


@pytest.mark.parametrize("own", [{"id": "mine", "of": "pet-000"}, {"id": "pet-000"}, {"id": "pet-001#mine", "of": "pet-000"}])
def test_an_added_edit_whose_id_says_nothing_of_its_image_is_named(tmp_path, own):
    pets = world.make_parts(dataset=world.Pets(count=2))
    protocols.run(world.spec(), tmp_path / "run", given=pets, stage="edits")
    path = tmp_path / "run" / "stages" / "edits.jsonl"
    added = {"factor": "background", "edited": "a photo of a red dog on a roof"}
    lines = _lines(path)
    _put(path, [*lines, {**own, **added}])
    with pytest.raises(BadRun, match=f'{own["id"]!r} is no id of an edit; give the line its image as "of", and delete the "id"'):
        protocols.run(world.spec(), tmp_path / "run", given=pets)
    _put(path, [*lines, {"of": "pet-000", **added}])
    assert added["edited"] in {trial.prompt for trial in protocols.run(world.spec(), tmp_path / "run", given=pets).trials}


def test_wrong_use_is_one_line(tmp_path):
    with pytest.raises(BadSpec, match="no stage named 'paint'; stages are sources, captions"):
        protocols.run(world.spec(), tmp_path / "run", given=world.make_parts(), stage="paint")
    protocols.run(world.spec(limit=4), tmp_path / "run", given=world.make_parts(), stage="edits")
    path = tmp_path / "run" / "stages" / "edits.jsonl"
    path.write_text(path.read_text().replace('"factor": "adjective"', '"factor": "adverb"', 1))
    with pytest.raises(BadRun, match="has the factor 'adverb'; factors are subject"):
        protocols.run(world.spec(limit=4), tmp_path / "run", given=world.make_parts())


def test_presets_fill_what_is_not_given():
    released = world.spec(preset="released", edit={}, quality={})
    assert "weather" in released.edit.factors and released.quality.choose == "last"
    paper = world.spec(edit={}, quality={})
    assert "weather" not in paper.edit.factors and paper.quality.choose == "best"
    whole = protocols.parse({"protocol": "lance", "preset": "paper", "model": "timm:resnet50", "data": "folder:photos"})
    assert whole.editor.name == "p2p:CompVis/stable-diffusion-v1-4" and whole.edit == paper.edit
    mine = {"protocol": "lance", "preset": "today", "model": "timm:resnet50", "data": "folder:photos", "rewriter": "lexicon:"}
    today = protocols.parse(mine)
    assert today.rewriter.name == "lexicon:" and today.editor.options == {"size": 512, "precision": "bfloat16"}
    assert (paper.quality.image_image, paper.quality.image_text, paper.quality.directional) == (0.7, 0.2, 0.2)


@pytest.mark.parametrize(("preset", "moved"), [("default", 40), ("released", 50)])
def test_a_class_outside_the_first_five_answers_has_no_chance_in_the_released_code(tmp_path, preset, moved):
    run = protocols.run(world.spec(limit=4, preset=preset), tmp_path / "run", given=world.make_parts())
    said = {"clean": (0.5, 5), "made": (0.1, 6)}
    run.append(
        predictions=[
            replace(each, model="six", truth=said[each.picture][0], rank=said[each.picture][1])
            for each in run.predictions()
            if each.picture in said
        ]
    )
    assert lance_results(run, model="six")["sensitivity"]["value"] == pytest.approx(moved)


def test_images_larger_than_the_editor_are_warned_of_by_their_own_size():
    class Wide(world.Leaning):
        size = 2 * world.SIDE

    class Large(world.Pets):
        def load(self, sample, size):
            return images.resize(world.draw(sample.caption)[None], 3 * world.SIDE)[0]

    def cautions(**parts):
        return [each for each in Workspace.open(world.spec(), world.make_parts(**parts)).cautions() if "shrunk" in each]

    assert cautions() == cautions(model=Wide()) == cautions(dataset=Large()) == []
    (told,) = cautions(dataset=Large(), model=Wide())
    side = world.SIDE
    assert f"images of {3 * side}×{3 * side} (the median of 8) are shrunk to {side}×{side}" in told


def test_the_check_by_similarity_to_the_class_can_be_switched_off(tmp_path):
    edit = {"factors": ["subject", "background"], "per_factor": 2}
    strict = protocols.run(
        world.spec(limit=4, edit={**edit, "class_similarity": 0.01}), tmp_path / "strict", given=world.make_parts(), stage="edits"
    )
    free = protocols.run(
        world.spec(limit=4, edit={**edit, "class_similarity": None}), tmp_path / "free", given=world.make_parts(), stage="edits"
    )
    reasons = [
        [json.loads(line).get("check") for line in (run.path / "stages" / "edits.jsonl").read_text().splitlines()]
        for run in (strict, free)
    ]
    assert "class-similar" in reasons[0] and "class-similar" not in reasons[1]


def test_strict_can_be_taken_back_but_not_taken_up_over_what_was_left_out(tmp_path):
    parts = world.make_parts(dataset=world.Pets(count=8, broken=(5,)))
    with pytest.raises(BadData, match="without strict resumes it"):
        protocols.run(world.spec(strict=True, engine={"batch": 1}), tmp_path / "run", given=parts)
    protocols.run(world.spec(), tmp_path / "run", given=parts, stage="sources")
    with pytest.raises(BadData, match=r"left out before \(1\)"):
        protocols.run(world.spec(strict=True), tmp_path / "run", given=parts)
    assert protocols.run(world.spec(), tmp_path / "run", given=parts).results["counts"]["skipped"] == 1
