"""A whole run over a world of coloured squares, whose outcome is known beforehand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from counterfoil import protocols, store
from counterfoil.core.errors import BadData, BadRun, BadSpec, LabelMismatch, RunFailed
from counterfoil.core.records import Verdict
from counterfoil.core.spec import PartSpec
from counterfoil.metrics.estimate import holm
from counterfoil.parts.images import png
from counterfoil.protocols import rescoring
from counterfoil.protocols.imagenet_d import imagenet_d
from counterfoil.protocols.imagenet_d.results import BIAS, read_paintings, results
from counterfoil.store.stages import StageTable
from tests.protocols.imagenet_d.world import (
    FOREST_AND_SNOW,
    GRID,
    PLACES,
    THINGS,
    SquareModel,
    SquarePainter,
    _draw,
    make_parts,
    spec,
    values,
)

PICTURES = 4 * (4 + 2) * 3


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> store.Run:
    return protocols.run(spec(), tmp_path_factory.mktemp("squares") / "run", given=make_parts())


def test_what_all_surrogates_miss_is_kept(run: store.Run) -> None:
    kept = [trial for trial in run.trials if trial.ending == "made"]
    assert len(list(run.trials)) == PICTURES
    assert {trial.value for trial in kept} == {"forest", "snow"}
    assert len(kept) == FOREST_AND_SNOW
    counts = run.results["counts"]
    assert counts["images"] == PICTURES and counts["kept"] == counts["validated"] == FOREST_AND_SNOW
    assert counts["turned_away"] == {"not hard": PICTURES - 24, "object": 3}


def test_every_picture_is_stored_with_its_prompt_and_what_all_said(run: store.Run) -> None:
    for trial in run.trials:
        assert (
            run.picture(trial).is_file()
            and trial.prompt.startswith("a photo of a ")
            and trial.factor in ("background", "texture")
        )
    assert len(list(run.predictions())) == 5 * PICTURES
    assert len(list(run.verdicts("fake:oracle"))) == PICTURES


def test_models_that_took_no_part_are_told_from_surrogates(run: store.Run) -> None:
    models = run.results["models"]
    assert {name: entry["role"] for name, entry in models.items()} == {
        "fake:a": "surrogate", "fake:b": "surrogate", "fake:unseen": "unseen", "fake:shortcut": "unseen", "fake:good": "unseen",
    }  # fmt: skip
    assert models["fake:a"]["mined"]["value"] == 0
    assert models["fake:good"]["mined"]["value"] == 100
    assert models["fake:unseen"]["mined"]["value"] == pytest.approx(100 * 9 / 21)  # right in the snow, wrong in the forest
    assert models["fake:unseen"]["painted"]["value"] == pytest.approx(100 * (PICTURES - 3 - 12) / (PICTURES - 3))
    assert models["fake:unseen"]["p"] < 0.05  # seven prompts of twenty-four


def test_drops_are_tested_for_models_that_took_no_part_and_corrected_for_their_number(run: store.Run) -> None:
    models = run.results["models"]
    tested = {name: entry["p"] for name, entry in models.items() if entry["role"] == "unseen"}
    assert [models[name]["p_adjusted"] for name in tested] == pytest.approx(holm(list(tested.values())), abs=1e-5)
    assert models["fake:a"]["p"] is None  # by construction, so there is nothing to test
    rows = run.results["leave_one_out"]
    assert [row["p_adjusted"] for row in rows] == pytest.approx(holm([row["p"] for row in rows]), abs=1e-5)
    assert imagenet_d.text(run.results).count("corrected for their number (Holm)") == 2


def test_the_mean_of_one_model_is_as_sure_as_that_model(run: store.Run) -> None:
    for name in ("fake:unseen", "fake:good"):
        found = results(run, model=name)
        alone = found["models"][name]["mined"]
        assert (found["accuracy"]["value"], found["accuracy"]["n"]) == (alone["value"], alone["n"])
        assert found["accuracy"]["low"] == pytest.approx(alone["low"], abs=2)
        assert found["accuracy"]["low"] < 100  # though every image of the set was recognised


def test_leaving_a_surrogate_out_shows_what_the_others_chose(run: store.Run) -> None:
    rows = {row["surrogate"]: row for row in run.results["leave_one_out"]}
    # Without a, what b misses: forest, snow and night. There a is right at night.
    assert rows["fake:a"]["kept"] == FOREST_AND_SNOW + 12
    assert rows["fake:a"]["mined"]["value"] == pytest.approx(100 * 12 / 33)
    assert [point["surrogates"] for point in run.results["by_number"]] == [0, 1, 2]
    accuracy = [point["accuracy"]["value"] for point in run.results["by_number"]]
    assert accuracy == sorted(accuracy, reverse=True)


def test_every_table_with_a_surrogate_says_so(run: store.Run) -> None:
    blocks = imagenet_d.text(run.results).split("\n\n")
    tables = [block for block in blocks if "surrogate *" in block or "left out *" in block]
    assert len(tables) == 2 and all(BIAS in block for block in tables)


def test_three_other_objects_are_too_few_to_show_that_a_background_draws_them(run: store.Run) -> None:
    modes = {name: entry["failure_modes"] for name, entry in run.results["models"].items()}
    shortcut = modes["fake:shortcut"]["painted"]
    assert shortcut["other"]["times"] == shortcut["mistakes"] == 3 * 4 * 3
    assert modes["fake:shortcut"]["pulls"] == []
    assert modes["fake:good"]["painted"]["mistakes"] == 0


def test_people_decide_on_what_was_kept(tmp_path: Path) -> None:
    run = protocols.run(spec(), tmp_path / "run", given=make_parts())
    kept = [trial.trial_id for trial in run.trials if trial.ending == "made"]
    run.append(verdicts=[Verdict(name, "made", "human", at % 2 == 0, 1.0, -1) for at, name in enumerate(kept[:10])])
    counts = results(store.open_run(run.path))["counts"]
    assert (counts["people_accept"], counts["people_reject"], counts["people_pending"]) == (5, 5, FOREST_AND_SNOW - 10)
    assert counts["validated"] == 5


def test_what_people_were_not_asked_about_counts_by_the_own_oracle(tmp_path: Path) -> None:
    run = protocols.run(spec(), tmp_path / "run", given=make_parts())
    bags = [trial.trial_id for trial in run.trials if run.classes[trial.label] == "bag" and trial.value == "snow"]
    kept = [trial.trial_id for trial in run.trials if trial.ending == "made"]
    said = {bags[0]: True, kept[0]: False, kept[1]: True}  # bags in the snow are what the own oracle does not see
    run.append(verdicts=[Verdict(name, "made", "human", keep, 1.0, -1) for name, keep in said.items()])
    run = store.open_run(run.path)
    found = results(run, oracle="human")
    shown = PICTURES - len(bags)  # people see the object in one more than the oracle, and in one less
    assert found["counts"]["object_seen"] == shown and found["counts"]["object_open"] == 0
    assert found["models"]["fake:good"]["painted"]["n"] == shown
    assert found["models"]["fake:good"]["mined"]["n"] == 1
    assert len(imagenet_d.observe(run, model="fake:good", oracle="human")) == shown  # what gate and compare read
    assert found["leave_one_out"][0]["kept"] == run.results["leave_one_out"][0]["kept"]


def test_an_oracle_that_nobody_asked_is_refused(run: store.Run) -> None:
    for read in (results, lambda run, oracle: imagenet_d.observe(run, model="fake:good", oracle=oracle)):
        with pytest.raises(BadRun, match="no verdicts by oracle 'human'; there are some by fake:oracle"):
            read(run, oracle="human")


def test_it_does_not_hang_on_how_the_work_is_laid_out(run: store.Run, tmp_path: Path) -> None:
    other = protocols.run(spec(engine={"batch": 5, "batch_size": 3, "chunk_images": 7}), tmp_path / "run", given=make_parts())
    assert (other.path / "results.json").read_bytes() == (run.path / "results.json").read_bytes()
    assert {trial.trial_id: trial.image for trial in other.trials} == {trial.trial_id: trial.image for trial in run.trials}


def test_an_endpoint_that_fails_half_way_loses_nothing(run: store.Run, tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match="resumes it"):
        protocols.run(spec(), tmp_path / "run", given=make_parts(painter=SquarePainter(fails_after=40)))
    again = SquarePainter()
    finished = protocols.run(spec(), tmp_path / "run", given=make_parts(painter=again))
    assert len(again.painted) == PICTURES - 32  # two batches of sixteen were there
    assert (finished.path / "results.json").read_bytes() == (run.path / "results.json").read_bytes()


def test_black_and_broken_pictures_are_counted_and_passed_over(tmp_path: Path) -> None:
    def spoil(prompt: str, image: torch.Tensor) -> torch.Tensor:
        if "night" in prompt:
            return torch.zeros_like(image)
        return image * float("nan") if "striped" in prompt else image

    run = protocols.run(spec(), tmp_path / "run", given=make_parts(painter=SquarePainter(spoil=spoil)))
    counts = run.results["counts"]
    assert counts["skipped"] == 24 and counts["images"] == PICTURES
    assert sorted(counts["skipped_for"].values()) == [12, 12]
    assert any("black" in reason for reason in counts["skipped_for"])
    assert any("not finite" in reason for reason in counts["skipped_for"])


def test_a_painter_that_only_paints_black_stops_the_run(tmp_path: Path) -> None:
    black = SquarePainter(spoil=lambda prompt, image: torch.zeros_like(image))
    with pytest.raises(BadData, match="none of its images can be used"):
        protocols.run(spec(), tmp_path / "run", given=make_parts(painter=black))


def test_a_surrogate_with_another_label_space_is_refused_before_anything_is_painted(tmp_path: Path) -> None:
    painter = SquarePainter()
    with pytest.raises(LabelMismatch) as caught:
        protocols.run(spec(), tmp_path / "run", given=make_parts(a=SquareModel(classes=("oak", "elm", "ash")), painter=painter))
    assert "\n" not in str(caught.value) and "fake:a" in str(caught.value)
    assert not painter.painted and not (tmp_path / "run").exists()


def test_a_stage_that_is_not_there_is_named_before_anything_is_painted(tmp_path: Path) -> None:
    with pytest.raises(BadSpec, match="no stage named 'paint'; stages are prompts, paintings, looks-fake-a-"):
        protocols.run(spec(), tmp_path / "run", given=make_parts(), stage="paint")
    assert not (tmp_path / "run").exists()


def test_a_prompt_corrected_by_hand_is_painted_again_and_no_other(tmp_path: Path) -> None:
    told: list[str] = []
    protocols.run(spec(), tmp_path / "run", given=make_parts(), stage="paintings", tell=told.append)
    assert told == ["stopped after the stage 'paintings'; the same command without --stage resumes it"]
    path = tmp_path / "run" / "stages" / "prompts.jsonl"
    path.write_text(path.read_text().replace("a photo of a mug in the beach", "a photo of a mug in the forest", 1))
    painter = SquarePainter()
    protocols.run(spec(), tmp_path / "run", given=make_parts(painter=painter))
    assert painter.painted == ["a photo of a mug in the forest"]


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"surrogates": []}, "no surrogates"),
        ({"oracle": None}, "no oracle"),
        ({"painter": None}, "painter to make a set, or data"),
        ({"data": "somewhere"}, "not both"),
        ({"models": ["fake:a"]}, "named twice"),
        ({"mining": {"misses": 3}}, "from 1 to the 2 surrogates"),
        ({"mining": {"mises": 3}}, "did you mean 'misses'"),
    ],
)
def test_specifications_that_cannot_be(changes: dict, complaint: str) -> None:
    with pytest.raises(BadSpec) as caught:
        spec(**changes)
    assert complaint in str(caught.value) and "\n" not in str(caught.value)


def test_near_duplicates_may_be_found_by_an_encoder(tmp_path: Path) -> None:
    class Middle:
        """Embeds what is in the middle, so that all images of an object are alike."""

        def embed_images(self, images: torch.Tensor) -> torch.Tensor:
            return images[:, :, 6:10, 6:10].mean((2, 3)).round() - 0.4

    changes = {"encoder": "fake:encoder", "mining": {"duplicates": 4}}
    run = protocols.run(spec(**changes), tmp_path / "run", given=make_parts(encoder=Middle()))
    kept = [trial.label for trial in run.trials if trial.ending == "made"]
    assert sorted(kept) == [0, 1, 2, 3]  # one of each object
    assert run.results["counts"]["turned_away"]["duplicate"] == FOREST_AND_SNOW - 4
    assert run.results["leave_one_out"][0]["kept"] == 4


def test_paintings_have_a_table_of_their_own(run: store.Run) -> None:
    rows = list(StageTable(run.path / "stages", "paintings"))
    assert len(rows) == PICTURES and len({row["seed"] for row in rows}) == PICTURES
    assert values()["painter"] == "fake:painter"


def test_another_model_can_be_scored_later(tmp_path: Path) -> None:
    run = protocols.run(spec(), tmp_path / "run", given=make_parts())
    rescoring.score(run, PartSpec(name="later"), built=SquareModel(blind=("snow",)))
    found = results(store.open_run(run.path), model="later")
    assert found["models"]["later"]["role"] == "unseen"
    assert found["accuracy"]["value"] == pytest.approx(found["models"]["later"]["mined"]["value"]) == pytest.approx(100 * 12 / 21)


def test_a_model_that_was_scored_on_some_pictures_alone_has_no_part_in_the_mean(tmp_path: Path) -> None:
    run = protocols.run(spec(), tmp_path / "run", given=make_parts())
    before = results(run)
    kept = {trial.trial_id for trial in run.trials if trial.ending == "made"}
    some = [each for each in run.predictions("fake:unseen") if each.picture == "made" and each.trial_id not in kept][:3]
    with run.appending() as rows:
        rows.add(predictions=[replace(each, model="stopped") for each in some])
    after = results(store.open_run(run.path))
    assert after["models"]["stopped"]["painted"]["n"] == len(some)
    for number in ("accuracy", "drop", "by_number", "leave_one_out", "model"):
        assert after[number] == before[number]


def test_a_run_of_which_nothing_is_kept_prints_its_numbers(tmp_path: Path) -> None:
    run = protocols.run(spec(), tmp_path / "run", given=make_parts(a=SquareModel(), b=SquareModel()))
    assert run.results["counts"]["kept"] == 0 and "took no part" in imagenet_d.text(run.results)


def test_pictures_of_a_folder_are_independent_of_each_other(tmp_path: Path) -> None:
    for number in range(8):
        for thing in THINGS:
            place = tmp_path / "photos" / thing / f"{number}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(png(_draw(f"a photo of a {thing} in the forest", number)))
    asked = {"protocol": "imagenet-d", "data": f"folder:{tmp_path / 'photos'}", "models": ["fake:unseen"]}
    run = protocols.run(protocols.parse(asked), tmp_path / "run", given=make_parts())
    assert len(set(read_paintings(run).clusters.tolist())) == 8 * len(THINGS)


def test_pictures_of_different_sizes_are_refused_in_a_line(tmp_path: Path) -> None:
    for side in (16, 24):
        for thing in THINGS:
            place = tmp_path / "photos" / thing / f"{side}.png"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(png(torch.rand(3, side, side, generator=torch.Generator().manual_seed(side))))
    asked = {"protocol": "imagenet-d", "data": f"folder:{tmp_path / 'photos'}", "models": ["fake:unseen"]}
    with pytest.raises(BadData, match=r"such as 16 × 16 and 24 × 24; bring them to one with --size"):
        protocols.run(protocols.parse(asked), tmp_path / "run", given=make_parts())
    protocols.run(protocols.parse({**asked, "size": 16}), tmp_path / "run of one size", given=make_parts())


def test_people_are_asked_about_what_was_kept_and_sentinels_are_what_was_too_easy(run: store.Run) -> None:
    pytest.importorskip("sqlalchemy")
    from counterfoil.web.review import ReviewPlan, items_of, known_from_run

    asked = items_of(run, ReviewPlan())
    kept = {trial.trial_id for trial in run.trials if trial.ending == "made"}
    assert {row["trial_id"] for row in asked} == kept
    sentinels = known_from_run(run, len(asked), ReviewPlan())
    assert len(sentinels) >= 4 and not {row["trial_id"] for row in sentinels} & kept
    assert {row["expected"] for row in sentinels} == {True, False}


class Twins(SquareModel):
    """Takes every mug in the forest for another class, which is called mug too."""

    aliases = (("n1",), ("n2",), ("n3",), ("n4",), ("n5",))

    def logits(self, images: torch.Tensor) -> torch.Tensor:
        rows = super().logits(images)[:, : len(THINGS)]
        forest = (images[:, :, :2, :].mean((2, 3)) - torch.tensor(PLACES["forest"])).abs().amax(1) < 0.1
        other = torch.where(forest & (rows.argmax(1) == 0), 9.0, 0.0)
        return torch.cat([rows, other[:, None]], 1)


def test_a_mistake_between_two_classes_of_one_name_counts(tmp_path: Path) -> None:
    ids = dict(zip(THINGS, ("n1", "n2", "n3", "n4"), strict=True))
    chosen = spec(grid={**GRID, "objects": ids}, models=["fake:twins"])
    made = protocols.run(
        chosen, tmp_path / "run", given=make_parts(**{name: Twins(classes=(*THINGS, "mug")) for name in ("a", "b", "twins")})
    )
    entry = made.results["models"]["fake:twins"]
    assert entry["painted"]["value"] == pytest.approx(100 * (PICTURES - 3 - 3) / (PICTURES - 3))
    assert entry["failure_modes"]["painted"]["mistakes"] == 3
    assert entry["confusions"] == [{"truth": "mug", "answer": "mug", "times": 3}]
