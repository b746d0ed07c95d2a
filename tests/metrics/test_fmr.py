"""The protocol's numbers against plain loops over the records, and by hand."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from counterfoil import store
from counterfoil.core.errors import BadRun
from counterfoil.core.records import Prediction, Verdict
from counterfoil.metrics.observations import ABSENT, NO, OPEN, YES
from counterfoil.metrics.tables import cell_text, text_of
from counterfoil.protocols.fmr.outcomes import read_outcomes
from counterfoil.protocols.fmr.page import tables
from counterfoil.protocols.fmr.results import MEANINGS, fmr_results
from counterfoil.store import Run
from tests.metrics.climbed import CLASSES, SPEC, Image, image, skipped_image, store_images


def many(count: int, seed: int = 0) -> list[Image]:
    draw = random.Random(seed)

    def way(right: float) -> str:
        return "".join("y" if draw.random() < right else "n" for _ in range(draw.randrange(1, 5)))

    images = []
    for number in range(count):
        if draw.random() < 0.05:
            images.append(skipped_image(f"{number}#bad"))
            continue
        valid = draw.random() < 0.7
        images.append(
            image(
                f"{number}#x", label=draw.randrange(3), clean=draw.random() < 0.8, reconstruction=draw.random() < 0.6,
                path=way(0.4) if valid else "", random_path=way(0.7) if valid else "",
                ending="budget" if number % 3 else "oracle",
            )
        )  # fmt: skip
    return images


def by_loops(images: list[Image], label: int | None = None) -> dict[str, tuple[float, int]]:
    """SA, PA and the rest, image by image, in the words of their definitions."""
    clean, matched, made, reconstruction, made_random, validated, steps, steps_random = ([] for _ in range(8))
    moved, made_moved = [], []
    for trials, predictions, _ in images:
        if trials[0].ending == "skipped" or (label is not None and trials[0].label != label):
            continue
        right = {(each.trial_id.split("#")[-1], each.picture): each.correct for each in predictions}
        clean.append(right["guided", "clean"])
        validated.append(trials[0].ending != "unvalidated")
        moved.append(validated[-1] and not (trials[0].ending == "oracle" and trials[0].steps == 0))
        made_moved += [right["guided", "made"]] if moved[-1] else []
        if validated[-1]:
            matched.append(right["guided", "clean"])
            made.append(right["guided", "made"])
            reconstruction.append(right["guided", "reconstruction"])
            made_random.append(right["random", "made"])
            steps.append(trials[0].steps)
            steps_random.append(trials[1].steps)
    per_cent = {
        "SA": clean, "PA": made, "VR": validated, "SA_matched": matched,
        "PA_reconstruction": reconstruction, "PA_random": made_random, "VR_first": moved, "PA_moved": made_moved,
    }  # fmt: skip
    values = {name: (100 * fmean(rows), len(rows)) for name, rows in per_cent.items()}
    values["steps"], values["steps_random"] = (fmean(steps), len(steps)), (fmean(steps_random), len(steps_random))
    values["FMR"] = (100 * fmean(made) / fmean(clean), len(made))
    values["FMR_moved"] = (100 * fmean(made_moved) / fmean(clean), len(made_moved))
    values["FMR_matched"] = (100 * fmean(made) / fmean(matched), len(made))
    values["FMR_random"] = (100 * fmean(made_random) / fmean(clean), len(made))
    return values


def test_values_agree_with_loops_over_the_records(tmp_path: Path) -> None:
    images = many(150)
    results = fmr_results(store_images(tmp_path, images), seed=0)
    wanted = by_loops(images)
    assert {name for name in results if isinstance(results[name], dict) and "value" in results[name]} == set(wanted)
    for name, (value, n) in wanted.items():
        assert results[name]["value"] == pytest.approx(value), name
        assert results[name]["n"] == n
    assert sorted(results["per_class"]) == ["ant", "bee", "cat"]  # no image is a dog
    for label, name in enumerate(("ant", "bee", "cat")):
        entry = results["per_class"][name]
        for each, (value, n) in by_loops(images, label).items():
            assert (entry[each]["value"], entry[each]["n"]) == (pytest.approx(value), n)
        assert entry["images"] == entry["SA"]["n"]
    bad = sum(each[0][0].ending == "skipped" for each in images)
    assert bad > 0
    assert results["counts"]["images"] == 150
    assert results["counts"]["skipped"] == bad == results["counts"]["endings"]["guided"]["skipped"]
    assert results["counts"]["readable"] == 150 - bad == results["SA"]["n"]
    assert results["counts"]["validated"] == results["PA"]["n"]
    assert results["counts"]["validated"] + results["counts"]["rejected"] == results["VR"]["n"]
    assert (results["counts"]["pending"], results["counts"]["unscored"]) == (0, 0)


def test_fmrs_interval_agrees_with_a_bootstrap_by_loops(tmp_path: Path) -> None:
    images = [each for each in many(100, seed=1) if each[0][0].ending != "skipped"]
    results = fmr_results(store_images(tmp_path, images), seed=0)
    draw = random.Random(1)
    seen = []
    for _ in range(1500):
        sums = by_loops([draw.choice(images) for _ in images])
        seen.append([sums["FMR"][0], sums["FMR_matched"][0]])
    for name, values in zip(("FMR", "FMR_matched"), zip(*seen, strict=True), strict=True):
        low, high = np.quantile(values, [0.025, 0.975])
        assert (results[name]["low"], results[name]["high"]) == (pytest.approx(low, abs=3), pytest.approx(high, abs=3))
        assert high - low > 20


def test_the_curve_carries_the_last_kept_picture_forward(tmp_path: Path) -> None:
    images = [
        image("a", path="yynn", random_path="yyyy"),
        image("b", path="yn", random_path="y"),
        image("c", path="n", random_path="nnn"),
        image("d", path="", random_path=""),
    ]
    results = fmr_results(store_images(tmp_path, images), seed=0)
    third = 100 / 3
    assert [each["step"] for each in results["curve"]] == [0, 1, 2, 3]
    assert [each["guided"]["value"] for each in results["curve"]] == pytest.approx([2 * third, third, 0, 0])
    assert [each["random"]["value"] for each in results["curve"]] == pytest.approx([2 * third] * 4)
    assert {each[arm]["n"] for each in results["curve"] for arm in ("guided", "random")} == {3}
    assert results["PA"]["value"] == 0
    assert results["steps"]["value"] == pytest.approx((3 + 1 + 0) / 3)
    assert results["VR"]["value"] == 75


def test_published_fmr_can_exceed_100_where_the_matched_one_does_not(tmp_path: Path) -> None:
    """Accepted images are the easy ones: nothing was gained, only the others were left out of PA."""
    images = [image(f"easy{n}", path="yyyy") for n in range(6)] + [image(f"hard{n}", clean=False) for n in range(2)]
    results = fmr_results(store_images(tmp_path, images), seed=0)
    assert results["FMR"]["value"] == pytest.approx(100 / 0.75)
    assert results["FMR_matched"]["value"] == 100


def numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, dict):
        for each in value.values():
            yield from numbers_in(each)
    elif isinstance(value, list):
        for each in value:
            yield from numbers_in(each)
    elif isinstance(value, float):
        yield value


@pytest.mark.parametrize(
    ("images", "undefined"),
    [
        ([], {"SA": "no readable image", "VR": "no image", "PA": "accepted no image"}),
        ([skipped_image("a")], {"SA": "no readable image", "VR": "no image", "PA": "accepted no image"}),
        ([image("a"), image("b")], {"PA": "accepted no image", "FMR": "accepted no image", "steps": "accepted no image"}),
        ([image("a", clean=False, path="y"), image("b", clean=False)], {"FMR": "SA is 0", "FMR_matched": "SA is 0"}),
        ([image("a", clean=False, path="y"), image("b")], {"FMR_matched": "SA is 0"}),
        ([image("a", path="yy", random_path="y")], {}),
        ([image("a", path="yy")], {"PA_random": "no random control", "FMR_random": "no random control"}),
    ],
)  # fmt: skip
def test_degenerate_runs_give_reasons_and_never_nan(tmp_path: Path, images: list[Image], undefined: dict[str, str]) -> None:
    run = store_images(tmp_path, images)
    with store.write(tmp_path, SPEC, CLASSES, {}) as writer:
        results = fmr_results(run, seed=0)
        writer.finish(results)
    assert run.results is not None
    assert all(math.isfinite(number) for number in numbers_in(results))
    for name, reason in undefined.items():
        assert results[name]["value"] is None
        assert reason in results[name]["note"]
    assert ("undefined" in text_of(tables(results))) == bool(undefined)


def test_parts_and_order_leave_no_trace_in_the_results(tmp_path: Path) -> None:
    images = many(40, seed=2)
    shuffled = random.Random(0).sample(images, len(images))
    texts = []
    for name, order, size in (("one", images, 64), ("other", shuffled, 3)):
        run = store_images(tmp_path / name, order, chunk_images=size)
        with store.write(run.path, SPEC, CLASSES, {}) as writer:
            writer.finish(fmr_results(run, seed=5))
        texts.append((run.path / "results.json").read_bytes())
    assert texts[0] == texts[1]
    assert fmr_results(store_images(tmp_path / "one", []), seed=6)["FMR"] != fmr_results(run, seed=5)["FMR"]


def test_images_the_oracle_abstains_on_wait_for_people(tmp_path: Path) -> None:
    undecided = [image(name, path=path, verdict=None) for name, path in (("a", "yn"), ("b", "yy"), ("c", "ny"))]
    run = store_images(tmp_path, [*undecided, image("d")])
    results = fmr_results(run, seed=0)
    assert (results["counts"]["pending"], results["counts"]["validated"], results["counts"]["rejected"]) == (3, 0, 1)
    assert (results["VR"]["value"], results["VR"]["n"]) == (0, 1)
    assert results["PA"]["value"] is None

    run.append(verdicts=[Verdict("a#guided", "made", "o", True, 1.0, 0), Verdict("b#guided", "made", "o", False, 0.0, 1)])
    run.append(verdicts=[Verdict("a#guided", "made", "o", None, 0.5, -1)])  # abstaining takes no answer back
    results = fmr_results(run, seed=0)
    assert (results["counts"]["pending"], results["counts"]["validated"], results["counts"]["rejected"]) == (1, 1, 2)
    assert (results["VR"]["value"], results["VR"]["n"]) == (pytest.approx(100 / 3), 3)
    assert (results["PA"]["value"], results["PA"]["n"]) == (0, 1)

    run.append(verdicts=[Verdict("b#guided", "made", "o", True, 1.0, 0)])  # a later answer replaces an earlier one
    assert fmr_results(run, seed=0)["PA"]["value"] == 50


def test_another_oracle_decides_on_what_was_made(tmp_path: Path) -> None:
    run = store_images(tmp_path, [image("a", path="yn", random_path="y"), image("b", path="yy", random_path="y"), image("c")])
    run.append(verdicts=[Verdict("a#guided", "made", "p", False, 0.1, 1), Verdict("a#random", "made", "p", True, 0.9, 0)])
    found = read_outcomes(run, oracle="p")
    by_name = {name: int(value) for name, value in zip(_names(run, found.keys), found.validated, strict=True)}
    assert by_name == {"a": NO, "b": OPEN, "c": NO}
    random_by_name = dict(zip(_names(run, found.keys), found.random_validated.tolist(), strict=True))
    assert random_by_name == {"a": YES, "b": OPEN, "c": ABSENT}
    assert fmr_results(run, oracle="p")["oracle"]["clean_accuracy"]["note"] == "the oracle was not asked about source images"
    with pytest.raises(BadRun, match="no verdicts by oracle 'q'; there are some by o, p"):
        read_outcomes(run, oracle="q")


def test_another_model_is_scored_on_what_was_made(tmp_path: Path) -> None:
    run = store_images(tmp_path, [image("a", path="yn"), image("b", path="yy"), image("c")])
    with pytest.raises(BadRun, match="no predictions by model 'timm:x'; there are some by m"):
        fmr_results(run, model="timm:x")
    said = [("a", "clean", True), ("b", "clean", True), ("c", "clean", False), ("a", "made", True)]
    run.append(predictions=[Prediction(f"{name}#guided", picture, "timm:x", 0, right, 1, 1) for name, picture, right in said])
    results = fmr_results(run, model="timm:x")
    assert (results["PA"]["value"], results["PA"]["n"]) == (100, 1)
    assert results["SA"]["value"] == pytest.approx(200 / 3)
    assert results["counts"]["unscored"] == 1
    assert results["curve"] == []  # it was not asked about the steps on the way
    assert results["model"] == {"name": "timm:x"}


def test_outcomes_hold_one_row_a_readable_image(tmp_path: Path) -> None:
    run = store_images(
        tmp_path, [image("a", label=2, path="yn", random_path="yyy"), skipped_image("b"), image("c", label=1, clean=False)]
    )
    found = read_outcomes(run)
    rows = {name: index for index, name in enumerate(_names(run, found.keys))}
    a, c = rows["a"], rows["c"]
    assert (len(found), found.skipped) == (2, 1)
    assert (found.label[a], found.label[c]) == (2, 1)
    assert (found.clean_correct[a], found.clean_correct[c]) == (YES, NO)
    assert (found.validated[a], found.validated[c]) == (YES, NO)
    assert (found.made_correct[a], found.made_correct[c]) == (NO, ABSENT)
    assert (found.steps[a], found.random_steps[a], found.random_steps[c]) == (1, 2, ABSENT)
    assert found.path_correct[a].tolist() == [YES, NO, NO, NO]
    assert found.path_correct[c].tolist() == [ABSENT] * 4
    assert found.random_path_correct[a].tolist() == [YES] * 4
    assert found.random_validated[c] == ABSENT
    assert found.take(found.label == 2).keys.tolist() == [found.keys[a]]


def _names(run: Run, keys: np.ndarray) -> list[str]:
    from counterfoil.store.files import key_of

    names = {key_of(trial.image_id): trial.image_id for trial in run.trials}
    return [names[int(key)] for key in keys]


def test_classes_of_one_name_are_told_apart(tmp_path: Path) -> None:
    with store.write(tmp_path, SPEC, ("crane", "crane", "cat"), {}) as writer:
        for label in range(3):
            writer.add(*image(str(label), label=label, path="y"))
    assert sorted(fmr_results(store.open_run(tmp_path))["per_class"]) == ["cat", "crane (0)", "crane (1)"]


def test_a_path_longer_than_the_budget_says_is_kept_whole(tmp_path: Path) -> None:
    run = store_images(tmp_path, [image("a", path="yyyyyn")], spec={"model": "m", "oracle": "o"})
    assert [each["guided"]["value"] for each in fmr_results(run)["curve"]] == [100] * 5 + [0]


def test_the_table_has_a_row_an_estimate_with_its_meaning(tmp_path: Path) -> None:
    results = fmr_results(store_images(tmp_path, [image(f"{n}", path="yn" if n % 2 else "yy") for n in range(8)]))
    found = tables(results)[0]
    rows = {row[0]: [cell_text(*pair) for pair in zip(row, found.columns, strict=True)] for row in found.rows}
    assert set(rows) == set(MEANINGS) == {name for name in results if "value" in results[name]}
    assert rows["PA"][1].startswith("50.0 % (") and rows["PA"][2] == "8"
    assert rows["steps"][1].startswith("1.0 (")
    assert rows["PA_random"][1] == "undefined: no random control, or the oracle accepted none of it"
    assert len(text_of([found]).splitlines()) == len(rows) + 1


def test_images_that_kept_no_step_are_counted_beside_pa(tmp_path: Path) -> None:
    """Their reconstruction is what PA scores, so a reader must know how many there are."""
    images = [image(f"{n}", path="y" if n < 3 else "yn") for n in range(8)]
    results = fmr_results(store_images(tmp_path, images))
    assert results["counts"]["unmoved"] == 3 and results["PA"]["n"] == 8
    assert "3 of them kept no step" in text_of(tables(results))


def test_an_oracle_asked_later_accepts_by_agreement_where_the_run_does(tmp_path: Path) -> None:
    run = store_images(
        tmp_path, [image(name, path="yy") for name in "abcd"], spec={**SPEC, "search": {"budget": 3, "accept": "agreement"}}
    )
    seen = {"a": (2, 2), "b": (2, 0), "c": (-1, -1), "d": (-1, 3)}  # on the source image and on what was made of it
    for name, (source, made) in seen.items():
        trial = f"{name}#guided"
        run.append(
            verdicts=[
                Verdict(trial, "clean", "later", False, 0.5, source),
                Verdict(trial, "made", "later", name == "d", 0.5, made),
            ]
        )
    assert read_outcomes(run, oracle="later").validated.tolist() == [YES, NO, YES, NO]
    assert read_outcomes(run).validated.tolist() == [YES] * 4  # the run's own oracle was asked by the rule already
