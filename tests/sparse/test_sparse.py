"""Masks: fitted on latents, kept in files, and obeyed by the search."""

from __future__ import annotations

import json

import pytest
import torch
from typer.testing import CliRunner

from counterfoil.core.errors import BadData, BadSpec, BadWeights, UsageError
from counterfoil.core.spec import EngineSpec, PartSpec, SearchSpec
from counterfoil.engine.scheduler import Engine
from counterfoil.parts.generators.latent import LatentGenerator
from counterfoil.parts.generators.pixels import pixels
from counterfoil.parts.generators.sparse import Mask, SparseGenerator, load, save
from counterfoil.parts.generators.sparse.box import around
from counterfoil.studies import runner
from counterfoil.studies.base import StudySettings
from counterfoil.studies.runs import Runs
from counterfoil.studies.sparse_fit.fit import Settings, fit
from counterfoil.testing import check_generator, pictures
from tests import reference
from tests.climbs import COLUMNS, jobs
from tests.engine.test_algorithm import assert_agrees
from tests.fakes import CommandedOracle, TinyAutoencoder, TinyModel
from tests.worlds import FAKES, arrays


def some(shape: tuple[int, ...] = (48, 4, 4), every: int = 7) -> Mask:
    kept = torch.zeros(shape).flatten()
    kept[::every] = 1
    return Mask(kept.reshape(shape).bool(), {"regularisation": 36.36})


def test_a_mask_comes_back_from_its_file_with_what_is_known_of_it(tmp_path):
    file = save(some(), tmp_path / "mask")
    again = load(file)
    assert torch.equal(again.kept, some().kept)
    assert again.sha256 == some().sha256 != some(every=8).sha256
    with_halo = Mask(some().kept, halo=2)
    assert load(save(with_halo, tmp_path / "other.a1_in1k-0f")).halo == 2 and with_halo.sha256 != some().sha256
    assert (tmp_path / "other.a1_in1k-0f.safetensors").is_file()
    about = json.loads(file.with_suffix(".json").read_text())
    assert about["kept"] == 110 and about["shape"] == [48, 4, 4] and about["sparsity"] == pytest.approx(85.677, abs=0.001)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "no such file; 'counterfoil study sparse'"),
        (b"hello", "not a safetensors file"),
        ({"other": torch.ones(3)}, "holds other, not a tensor named 'kept'"),
        ({"kept": torch.zeros(3)}, "keeps no coordinate"),
    ],
)
def test_files_that_are_no_masks_are_refused(tmp_path, content, complaint):
    from safetensors.torch import save_file

    file = tmp_path / "mask.safetensors"
    if isinstance(content, bytes):
        file.write_bytes(content)
    elif content is not None:
        save_file(content, file)
    with pytest.raises(BadWeights, match=complaint):
        load(file)


@pytest.mark.parametrize("make", [lambda: LatentGenerator(TinyAutoencoder(), size=16), lambda: pixels("linf", epsilon=0.2)])
def test_a_masked_generator_keeps_the_contract(make):
    inner = make()
    shape = inner.start(pictures(2, 16), torch.zeros(2).long(), torch.zeros(2).long())[inner.moving].shape[1:]
    check_generator(SparseGenerator(inner, some(tuple(shape))), size=16)


def test_only_the_kept_coordinates_move_and_a_step_is_as_long_as_without_a_mask():
    inner, mask = LatentGenerator(TinyAutoencoder()), some()
    sparse = SparseGenerator(inner, mask)
    zeros = torch.zeros(3).long()
    state = sparse.start(pictures(3, 16), zeros, zeros)
    assert state["kept"].shape == (3, 110)
    length = 0.1 * state["scale"][:, None] * 110**0.5  # of a step of 0.1 with `l2` and `scale`
    dense = 0.1 * inner.start(pictures(3, 16), zeros, zeros)["scale"][:, None] * mask.kept.numel() ** 0.5
    assert torch.allclose(length, dense)
    moved = sparse.step(state, torch.ones(3, 110))
    change = moved["latent"] - state["latent"]
    assert bool((change[:, mask.kept] != 0).all()) and not bool(change[:, ~mask.kept].any())
    assert torch.equal(moved["latent"][:, mask.kept], moved["kept"])
    assert torch.equal(sparse.render(state), inner.render(inner.start(pictures(3, 16), zeros, zeros)))


def test_the_masked_gradient_is_the_kept_part_of_the_whole_one():
    inner, mask = LatentGenerator(TinyAutoencoder()), some()
    sparse, zeros = SparseGenerator(inner, mask), torch.zeros(2).long()
    state = sparse.start(pictures(2, 16), zeros, zeros)
    leaf, whole = state["kept"].clone().requires_grad_(), state["latent"].clone().requires_grad_()
    kept = torch.autograd.grad(TinyModel().logits(sparse.render({**state, "kept": leaf})).square().sum(), leaf)[0]
    full = torch.autograd.grad(TinyModel().logits(inner.render({**state, "latent": whole})).square().sum(), whole)[0]
    assert torch.allclose(kept, full[:, mask.kept], atol=1e-6)


def test_the_engine_agrees_with_the_plain_algorithm_under_a_mask():
    generator, search = SparseGenerator(LatentGenerator(TinyAutoencoder()), some()), SearchSpec(budget=3, step=0.2)
    parts, layout = (TinyModel(), generator, CommandedOracle()), EngineSpec(slots=5, batch_size=8)
    engine = Engine(*parts, columns=COLUMNS, search=search, layout=layout, keep_places=True)
    plain = reference.Plain(TinyModel(), generator, CommandedOracle(), COLUMNS, 8)
    for done in engine.run(jobs()):
        outcome = reference.guided(plain, done.job.image, done.job.label, done.job.seed, search)
        assert_agrees(done.climbs[0], outcome, done.images[0])
        assert done.places[0].shape == (110,)


def test_a_mask_of_another_shape_is_refused():
    sparse, zeros = SparseGenerator(LatentGenerator(TinyAutoencoder()), some((48, 8, 8))), torch.zeros(1).long()
    with pytest.raises(BadSpec, match=r"rows of shape \(48, 8, 8\).*\(48, 4, 4\); fit one"):
        sparse.start(pictures(1, 16), zeros, zeros)


def test_the_regression_finds_the_dimensions_that_changed():
    source = torch.Generator().manual_seed(0)
    original = torch.randn(80, 4, 5, 5, generator=source)
    perturbed = original.clone()
    perturbed[:, 2, 1, 3] += 2.0
    perturbed[:, 0, 0, 0] -= 2.0
    fitted = fit(original, perturbed, Settings(regularisation=8.0, matched=False))
    assert {(2, 1, 3), (0, 0, 0)} <= {tuple(place) for place in fitted.mask.kept.nonzero().tolist()}
    assert fitted.mask.sparsity > 90
    assert fitted.score.value > 80 and fitted.score.n == 32
    weaker = fit(original, perturbed, Settings(regularisation=8.0, meaning="C", matched=False))
    assert weaker.mask.sparsity < fitted.mask.sparsity
    chance = fit(original, torch.randn(original.shape, generator=source), Settings(regularisation=8.0, matched=False))
    assert chance.score.value < 70


def test_matched_pairs_show_a_change_that_differences_between_images_hide():
    source = torch.Generator().manual_seed(0)
    original = 10 * torch.randn(60, 3, 4, 4, generator=source)
    perturbed = original + 0.3 * torch.randn(original.shape, generator=source)
    perturbed[:, 1, 2, 2] += 0.6
    matched = fit(original, perturbed, Settings(sparsity=95.0, iterations=60))
    assert matched.score.value > 80 and bool(matched.mask.kept[1, 2, 2])
    assert fit(original, perturbed, Settings(sparsity=95.0, iterations=60, matched=False)).score.value < 70
    noise = fit(original, original + torch.randn(original.shape, generator=source), Settings(sparsity=95.0, iterations=60))
    assert noise.score.low < 50 < noise.score.high


def test_a_sparsity_is_reached_by_looking_for_the_regularisation():
    source = torch.Generator().manual_seed(0)
    original = torch.randn(60, 400, generator=source)
    perturbed = original + 0.6 * torch.randn(400, generator=source)
    for wanted in (98.0, 90.0):
        fitted = fit(original, perturbed, Settings(sparsity=wanted, iterations=60, matched=False))
        assert fitted.mask.sparsity == pytest.approx(wanted, abs=1.0)
        again = fit(original, perturbed, Settings(regularisation=fitted.mask.about["lambda"], iterations=60, matched=False))
        assert torch.equal(again.mask.kept, fitted.mask.kept)


def test_wrong_settings_are_named():
    with pytest.raises(BadSpec, match="regularisation=0"):
        Settings(regularisation=0)
    with pytest.raises(BadSpec, match="sparsity=100"):
        Settings(sparsity=100)
    with pytest.raises(BadSpec, match="one of lambda, C"):
        Settings(meaning="alpha")
    with pytest.raises(BadData, match="ten or more pairs"):
        fit(torch.zeros(3, 2), torch.zeros(3, 2), Settings())


def test_run_takes_a_mask(tmp_path):
    from counterfoil.cli.app import app

    data = arrays(tmp_path / "a.npz", 8)
    file = save(some((3, 16, 16)), tmp_path / "mask")
    words = ["run", "--model", f"python:{FAKES}:TinyModel", "--data", f"tensors:{data}", "--generator", "pixels:", "--oracle"]
    words += ["daylight:", "--size", "16", "--set", "budget=2", "--mask", str(file), "--out", str(tmp_path / "run")]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    told = json.loads((tmp_path / "run" / "run.json").read_text())
    assert told["spec"]["search"]["mask"] == str(file)
    assert some((3, 16, 16)).sha256 in json.dumps(told["provenance"])


def decided(folder, generator, *, count, **options):
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


def test_the_study_finds_the_cells_of_the_classes_and_decodes_their_window(tmp_path):
    settings = decided(tmp_path, PartSpec(name=f"python:{FAKES}:TinyAutoencoder"), count=160, window=50.0)
    report = runner.run("sparse", settings, Runs(settings))
    (mask,) = (tmp_path / "masks").glob("*.safetensors")
    assert around(load(mask).kept.any(0)).area <= 8  # half of 4 × 4 cells
    (row,) = report.findings.tables[0].rows
    assert {"test score", "time of a climb", "PSNR to the whole decoder"} <= set(row.values)
    assert "of 4 × 4 cells" in report.findings.notes[0]
    told = [json.loads(file.read_text())["provenance"] for file in (tmp_path / "runs").glob("*/run.json")]
    assert sum(load(mask).sha256 in json.dumps(each) for each in told) == 1


def test_an_unknown_question_is_refused(tmp_path):
    settings = decided(tmp_path, PartSpec(name="pixels:l2"), count=40, question="colour")
    with pytest.raises(UsageError, match="question='colour': one of class, perturbed"):
        runner.run("sparse", settings, Runs(settings))


def test_the_study_fits_saves_and_uses_a_mask_of_single_dimensions(tmp_path):
    pixel_steps = PartSpec(name="pixels:l2", options={"epsilon": 3.0})
    settings = decided(tmp_path, pixel_steps, count=40, question="perturbed", sparsity=95.0)
    report = runner.run("sparse", settings, Runs(settings))
    (mask,) = (tmp_path / "masks").glob("*.safetensors")
    (row,) = report.findings.tables[0].rows
    assert row.values["sparsity"].value == load(mask).sparsity
    assert [each.about[1] for each in report.findings.tables[1].rows] == ["all", "kept", "kept less all"]
