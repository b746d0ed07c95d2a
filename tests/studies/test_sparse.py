"""The sparse study: cells and dimensions are found where they are and nowhere else, and the search is held to them."""

from __future__ import annotations

import json

import pytest
import torch

from counterfoil.core.errors import BadData, BadSpec, UsageError
from counterfoil.core.spec import PartSpec
from counterfoil.parts.fast.window import bounding_box
from counterfoil.parts.generators.masked import load_mask
from counterfoil.studies import runner
from counterfoil.studies.base import StudySettings
from counterfoil.studies.runs import Runs
from counterfoil.studies.sparse_fit import best_window, fit, fit_cells
from tests.worlds import FAKES, arrays


def make_latents(count: int = 240, *, told: bool = True, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Noise of 3 × 8 × 8, with the class of three in cells (2, 5) and (3, 5)."""
    source = torch.Generator().manual_seed(seed)
    latents, labels = torch.randn(count, 3, 8, 8, generator=source), torch.randint(3, (count,), generator=source)
    if told:
        latents[torch.arange(count), labels, 2, 5] += 2.0
        latents[torch.arange(count), labels, 3, 5] += 2.0
    return 5 * latents + 1, labels


def test_the_cells_that_tell_are_kept_with_all_their_channels():
    fitted = fit_cells(*make_latents(), window=25, halo=1)
    cells = fitted.mask.kept.any(0)
    assert bool(cells[2, 5]) and bool(cells[3, 5]) and bool((fitted.mask.kept == cells).all())
    assert bounding_box(cells).dilate(1, grid=(8, 8)).area <= 16
    assert fitted.score.low > 60 > fitted.chance
    assert fitted.mask.about["test_score"]["value"] == fitted.score.value


def test_noise_scores_at_chance():
    fitted = fit_cells(*make_latents(told=False, seed=4), window=50)
    assert fitted.score.low < fitted.chance + 5


def test_settings_and_data_that_cannot_do_are_named():
    with pytest.raises(BadSpec, match="window=0"):
        fit_cells(*make_latents(), window=0)
    with pytest.raises(BadSpec, match="halo=-1"):
        fit_cells(*make_latents(), halo=-1)
    with pytest.raises(BadSpec, match="less than one cell of 8 × 8"):
        fit_cells(*make_latents(), window=1)
    with pytest.raises(BadData, match="40 or more images"):
        fit_cells(*make_latents(30))
    with pytest.raises(BadData, match="two or more classes, got 50 of 1"):
        fit_cells(torch.randn(50, 3, 4, 4), torch.zeros(50).long())
    with pytest.raises(BadData, match=r"shape \(7,\) has no rows and columns"):
        fit_cells(torch.randn(50, 7), torch.arange(50) % 2)
    with pytest.raises(BadData, match="no cell of 50 latents"):
        fit_cells(torch.zeros(50, 3, 4, 4), torch.arange(50) % 2)


def test_the_best_box_is_the_best_of_all():
    weights = torch.rand(5, 6, generator=torch.Generator().manual_seed(2))
    for area in (1, 4, 7, 12, 30):
        found = best_window(weights, window=100 * area / 30)
        every = [
            float(weights[top:bottom, left:right].sum())
            for top in range(5)
            for bottom in range(top + 1, 6)
            for left in range(6)
            for right in range(left + 1, 7)
            if (bottom - top) * (right - left) <= area
        ]
        assert found.area <= area
        assert float(weights[found.top : found.bottom, found.left : found.right].sum()) == pytest.approx(max(every), abs=1e-6)


def test_the_regression_finds_the_dimensions_that_changed():
    source = torch.Generator().manual_seed(0)
    original = torch.randn(80, 4, 5, 5, generator=source)
    perturbed = original.clone()
    perturbed[:, 2, 1, 3] += 2.0
    perturbed[:, 0, 0, 0] -= 2.0
    fitted = fit(original, perturbed, regularisation=8.0, matched=False)
    assert {(2, 1, 3), (0, 0, 0)} <= {tuple(place) for place in fitted.mask.kept.nonzero().tolist()}
    assert fitted.mask.sparsity > 90
    assert fitted.score.value > 80 and fitted.score.n == 32
    weaker = fit(original, perturbed, regularisation=8.0, meaning="C", matched=False)
    assert weaker.mask.sparsity < fitted.mask.sparsity
    chance = fit(original, torch.randn(original.shape, generator=source), regularisation=8.0, matched=False)
    assert chance.score.value < 70


def test_matched_pairs_show_a_change_that_differences_between_images_hide():
    source = torch.Generator().manual_seed(0)
    original = 10 * torch.randn(60, 3, 4, 4, generator=source)
    perturbed = original + 0.3 * torch.randn(original.shape, generator=source)
    perturbed[:, 1, 2, 2] += 0.6
    matched = fit(original, perturbed, sparsity=95.0, iterations=60)
    assert matched.score.value > 80 and bool(matched.mask.kept[1, 2, 2])
    assert fit(original, perturbed, sparsity=95.0, iterations=60, matched=False).score.value < 70
    noise = fit(original, original + torch.randn(original.shape, generator=source), sparsity=95.0, iterations=60)
    assert noise.score.low < 50 < noise.score.high


def test_a_sparsity_is_reached_by_looking_for_the_regularisation():
    source = torch.Generator().manual_seed(0)
    original = torch.randn(60, 400, generator=source)
    perturbed = original + 0.6 * torch.randn(400, generator=source)
    for wanted in (98.0, 90.0):
        fitted = fit(original, perturbed, sparsity=wanted, iterations=60, matched=False)
        assert fitted.mask.sparsity == pytest.approx(wanted, abs=1.0)
        again = fit(original, perturbed, regularisation=fitted.mask.about["lambda"], iterations=60, matched=False)
        assert torch.equal(again.mask.kept, fitted.mask.kept)


def test_wrong_settings_are_named():
    pairs = torch.zeros(12, 2), torch.ones(12, 2)
    with pytest.raises(BadSpec, match="regularisation=0"):
        fit(*pairs, regularisation=0)
    with pytest.raises(BadSpec, match="sparsity=100"):
        fit(*pairs, sparsity=100)
    with pytest.raises(BadSpec, match="one of lambda, C"):
        fit(*pairs, meaning="alpha")
    with pytest.raises(BadSpec, match="keeps no dimension of 12 pairs"):
        fit(*pairs, regularisation=1e6)
    with pytest.raises(BadData, match="ten or more pairs"):
        fit(torch.zeros(3, 2), torch.zeros(3, 2))


def sparse_settings(folder, generator, *, count, **options):
    return StudySettings(
        folder=folder,
        models=(PartSpec(name=f"python:{FAKES}:TinyModel"),),
        data=PartSpec(name=f"tensors:{arrays(folder / 'a.npz', count)}"),
        generator=generator,
        oracle=PartSpec(name="daylight:"),
        images=24,
        search={"budget": 3, "step": 0.2},
        options={"fitting_images": count, **options},
    )


def test_the_study_finds_the_cells_of_the_classes_and_searches_in_them(tmp_path):
    settings = sparse_settings(tmp_path, PartSpec(name=f"python:{FAKES}:TinyAutoencoder"), count=160, window=50.0)
    report = runner.run("sparse", settings, Runs(settings))
    (mask,) = (tmp_path / "masks").glob("*.safetensors")
    assert bounding_box(load_mask(mask).kept.any(0)).area <= 8  # half of 4 × 4 cells
    (row,) = report.findings.tables[0].rows
    titles = [column.title for column in report.findings.tables[0].columns]
    assert {"test score", "time of a climb", "PSNR to the whole decoder"} <= set(titles) and len(row) == len(titles)
    assert "window: none: its autoencoder decodes whole images only" in report.findings.notes[0]
    told = [json.loads(file.read_text())["provenance"] for file in (tmp_path / "runs").glob("*/run.json")]
    assert sum(load_mask(mask).sha256 in json.dumps(each) for each in told) == 1


def test_an_unknown_question_is_refused(tmp_path):
    settings = sparse_settings(tmp_path, PartSpec(name="pixels:l2"), count=40, question="colour")
    with pytest.raises(UsageError, match="question='colour': one of class, perturbed"):
        runner.run("sparse", settings, Runs(settings))


def test_the_study_fits_saves_and_uses_a_mask_of_single_dimensions(tmp_path):
    pixel_steps = PartSpec(name="pixels:l2", options={"epsilon": 3.0})
    settings = sparse_settings(tmp_path, pixel_steps, count=40, question="perturbed", sparsity=95.0)
    report = runner.run("sparse", settings, Runs(settings))
    (mask,) = (tmp_path / "masks").glob("*.safetensors")
    (row,) = report.findings.tables[0].rows
    assert row[1].value == load_mask(mask).sparsity
    assert [each[1] for each in report.findings.tables[1].rows] == ["all", "kept", "kept less all"]
