"""Ensembles of oracles, people's answers from a file, and a probe that is fitted on the run's own images."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

import counterfoil
from counterfoil import protocols
from counterfoil.core.errors import BadPart
from counterfoil.parts import images, registry
from counterfoil.parts.contracts import Oracle, Verdicts
from counterfoil.parts.datasets.arrays import from_arrays
from counterfoil.parts.oracles import ensemble
from counterfoil.parts.oracles.ensemble import EnsembleOracle
from counterfoil.parts.oracles.human import human_oracle
from counterfoil.parts.oracles.probe import ProbeOptions, ProbeOracle
from counterfoil.parts.oracles.scoring import AcceptanceRule
from counterfoil.protocols.workspace import Given
from counterfoil.testing import check_oracle, pictures
from tests.fakes import TinyModel
from tests.parts.created import ensemble_oracle
from tests.parts.oracles.saved import Fixed, Saying
from tests.worlds import arrays, spec

ALL_VOTES = list(itertools.product([1, 0, -1], repeat=3))  # every way three oracles can answer
MANY, NONE = torch.zeros(len(ALL_VOTES), 3, 4, 4), torch.zeros(len(ALL_VOTES), dtype=torch.long)


def members() -> list[Oracle]:
    """Three oracles that together give every combination of answers, one per row."""
    count = len(ALL_VOTES)
    scores = [[0.9] * count, [0.6] * count, [0.3] * count]
    return [Saying([votes[number] for votes in ALL_VOTES], scores[number], [number] * count) for number in range(3)]


def by_hand(votes: tuple[int, ...], rule: str) -> int:
    spoken = [vote for vote in votes if vote != -1]
    if not spoken:
        return -1
    if rule == "unanimous":
        return int(all(spoken))
    return int(sum(spoken) > len(spoken) - sum(spoken))


@pytest.mark.parametrize("rule", ["unanimous", "majority"])
def test_votes_are_counted(rule: str) -> None:
    oracle = EnsembleOracle(members(), rule=rule).bind(["a", "b", "c"])  # type: ignore[arg-type]
    verdicts = oracle.judge(MANY, NONE)
    assert verdicts.keeps_label.tolist() == [by_hand(votes, rule) for votes in ALL_VOTES]
    assert verdicts.keeps_label.dtype == torch.int8


def test_the_score_is_the_mean_of_those_who_answer() -> None:
    verdicts = EnsembleOracle(members(), rule="majority").bind(["a", "b", "c"]).judge(MANY, NONE)
    expected = []
    for votes in ALL_VOTES:
        counted = [score for score, vote in zip((0.9, 0.6, 0.3), votes, strict=True) if vote != -1] or [0.9, 0.6, 0.3]
        expected.append(sum(counted) / len(counted))
    assert verdicts.scores.tolist() == pytest.approx(expected)


def test_the_class_seen_is_the_one_named_most() -> None:
    rows = [[2, 1, 2], [0, 1, 2], [2, -1, -1], [-1, -1, -1]]
    oracles = [Saying([0] * 4, [0.5] * 4, [row[number] for row in rows]) for number in range(3)]
    verdicts = (
        EnsembleOracle(oracles, rule="majority").bind(["a", "b", "c"]).judge(torch.zeros(4, 3, 4, 4), torch.zeros(4).long())
    )
    assert verdicts.predicted.tolist() == [2, 0, 2, -1]


def test_the_mean_rule_averages_probabilities() -> None:
    one = Fixed([[0.7, 0.2, 0.1], [0.6, 0.4, 0.0]])
    other = Fixed([[0.1, 0.8, 0.1], [0.1, 0.2, 0.7]])
    verdicts = (
        EnsembleOracle([one, other], rule="mean").bind(["a", "b", "c"]).judge(torch.zeros(2, 3, 4, 4), torch.tensor([1, 1]))
    )
    assert verdicts.scores.tolist() == pytest.approx([0.5, 0.3])
    assert verdicts.predicted.tolist() == [1, 0]
    assert verdicts.keeps_label.tolist() == [1, 0]


def test_the_mean_rule_leaves_out_who_abstains() -> None:
    unsure = AcceptanceRule(threshold=0.5, below_threshold="abstain")
    one = Fixed([[0.6, 0.4], [0.45, 0.55], [0.45, 0.45]], unsure)
    other = Fixed([[0.45, 0.45], [0.7, 0.3], [0.4, 0.4]], unsure)
    verdicts = EnsembleOracle([one, other], rule="mean").bind(["a", "b"]).judge(torch.zeros(3, 3, 4, 4), torch.zeros(3).long())
    assert verdicts.keeps_label.tolist() == [1, 1, -1]
    assert verdicts.scores.tolist() == pytest.approx([0.6, 0.575, 0.5])


def test_the_mean_rule_weighs_every_member_alike() -> None:
    """Probabilities that do not add up to one, as SigLIP's, are brought to shares first."""
    one, other = Fixed([[0.02, 0.06]]), Fixed([[0.6, 0.4]])
    verdicts = EnsembleOracle([one, other], rule="mean").bind(["a", "b"]).judge(torch.zeros(1, 3, 4, 4), torch.tensor([0]))
    assert verdicts.scores.tolist() == pytest.approx([(0.25 + 0.6) / 2])


def test_a_threshold_holds_for_the_mean() -> None:
    oracle = ensemble_oracle(
        members=[Fixed([[0.6, 0.4]]), Fixed([[0.6, 0.4]])], rule="mean", threshold=0.7, below_threshold="abstain"
    )
    assert oracle.bind(["a", "b"]).judge(torch.zeros(1, 3, 4, 4), torch.tensor([0])).keeps_label.tolist() == [-1]


def test_members_are_found_by_name_with_their_options(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    monkeypatch.setattr(registry, "create", lambda *arguments: asked.append(arguments) or Fixed([[0.5, 0.5]]))
    members = ["clip:a", {"name": "clip:b", "margin": 0.1}, {"name": "clip:c", "options": {"margin": 0.2}}]
    ensemble.ensemble_oracle("", ensemble.EnsembleOptions(members=members, rule="majority"))
    assert asked == [("oracle", "clip:a", {}), ("oracle", "clip:b", {"margin": 0.1}), ("oracle", "clip:c", {"margin": 0.2})]


def test_provenance_numbers_the_members() -> None:
    class Known(Fixed):
        def provenance(self) -> dict[str, str]:
            return {"weights": "abc"}

    oracle = EnsembleOracle([Known([[1.0]]), Fixed([[1.0]])])
    assert oracle.provenance() == {"rule": "unanimous", "0.weights": "abc"}


TWO = ["Red Boot", "bag"]
LABELS = torch.tensor([0, 1, 0, 1])


def answers(path: Path, *rows: tuple[int, str, str]) -> Path:
    """A file of answers about the test images, by their number."""
    lines = [f"{images.digest(pictures()[number])},{label},{answer}" for number, label, answer in rows]
    path.write_text("picture,label,answer\n" + "\n".join(lines) + "\n")
    return path


def test_nobody_has_answered_yet() -> None:
    verdicts = human_oracle().bind(TWO).judge(pictures(), LABELS)
    assert verdicts.keeps_label.tolist() == [-1] * 4
    assert verdicts.predicted.tolist() == [-1] * 4
    check_oracle(human_oracle(), TWO)


def test_answers_are_given_once_they_are_there(tmp_path: Path) -> None:
    file = answers(tmp_path / "a.csv", (0, "red boot", "yes"), (1, "bag", "no"), (2, "bag", "yes"))
    oracle = human_oracle(str(file))
    verdicts = oracle.bind(TWO).judge(pictures(), LABELS)
    assert verdicts.keeps_label.tolist() == [1, 0, -1, -1]  # the third was asked about another class
    assert verdicts.scores.tolist() == [1, 0, 0, 0]
    assert verdicts.predicted.tolist() == [0, -1, -1, -1]
    assert len(oracle.provenance()["answers"]) == 64
    check_oracle(oracle, TWO)


def test_most_people_decide_and_a_tie_stays_open(tmp_path: Path) -> None:
    votes = [(0, "red_boot", "yes"), (0, "red boot", "no"), (0, "Red Boot", "1"), (1, "bag", "yes"), (1, "bag", "no")]
    verdicts = human_oracle(str(answers(tmp_path / "a.csv", *votes))).bind(TWO).judge(pictures(), LABELS)
    assert verdicts.keeps_label.tolist() == [1, -1, -1, -1]


def test_a_row_without_an_answer_is_a_question_still_open(tmp_path: Path) -> None:
    file = answers(tmp_path / "a.csv", (0, "red boot", "yes"), (1, "bag", " "), (2, "bag", ""))
    assert human_oracle(str(file)).bind(TWO).judge(pictures(), LABELS).keeps_label.tolist() == [1, -1, -1, -1]


def test_people_beside_an_oracle_that_answers_now() -> None:
    now = Saying([1, 0, 1, 0], [0.9, 0.1, 0.8, 0.2], [0, 0, 0, 0])
    both = EnsembleOracle([now, human_oracle()]).bind(TWO)
    assert both.judge(pictures(), LABELS).keeps_label.tolist() == [1, 0, 1, 0]


def test_a_run_with_people_alone_leaves_everything_open(tmp_path: Path) -> None:
    data = f"tensors:{arrays(tmp_path / 'data.npz', 8)}"
    run = protocols.run(spec(data, oracle="human:"), tmp_path / "run", given=Given({"oracle": human_oracle()}))
    assert {verdict.keeps_label for verdict in run.verdicts()} == {None}
    assert all(trial.image for trial in run.trials)


HUES = ["blue", "green", "red"]


class Colours:
    """Embeds an image as its mean colour, in eight dimensions."""

    size = None

    def __init__(self, blind: bool = False) -> None:
        self.blind = blind

    def embed_images(self, images):
        means = torch.zeros_like(images).mean((2, 3)) if self.blind else images.mean((2, 3))
        return torch.cat([means, torch.ones(len(images), 5)], 1)

    def embed_texts(self, texts):
        raise BadPart("no words")


def draw_photos(per_class: int = 12, *, wrong: int = 0, seed: int = 0):
    """Images of one colour each, with noise; the last `wrong` of each class carry the next class's colour."""
    draw = torch.Generator().manual_seed(seed)
    images, labels = [], []
    for label in range(3):
        for number in range(per_class):
            colour = (label + 1) % 3 if number >= per_class - wrong else label
            image = torch.full((3, 8, 8), 0.3)
            image[2 - colour] += 0.4
            images.append((image + 0.1 * torch.rand(3, 8, 8, generator=draw)).clamp(0, 1))
            labels.append(label)
    return from_arrays(torch.stack(images), np.array(labels), classes=HUES)


def fit_probe(data=None, **options) -> ProbeOracle:
    return ProbeOracle(Colours(), options=ProbeOptions(**options)).bind(HUES).fit(data or draw_photos())


def load_all(data):
    samples = list(data)
    return torch.stack([data.load(each, None) for each in samples]), torch.tensor([each.label for each in samples]), samples


@pytest.mark.parametrize("head", ["linear", "knn"])
def test_it_knows_the_classes_it_was_fitted_on(head):
    oracle = fit_probe(head=head, k=3)
    images, labels, _ = load_all(draw_photos(4, seed=9))
    assert oracle.judge(images, labels).keeps_label.tolist() == [1] * 12
    assert oracle.judge(images, (labels + 1) % 3).keeps_label.tolist() == [0] * 12
    assert oracle.quality.accuracy[0] == 1


def test_an_image_is_judged_by_a_head_that_has_not_seen_its_source():
    data = draw_photos(wrong=1)
    oracle = fit_probe(data, head="knn", k=1, false_accepts=0.5)
    images, labels, samples = load_all(data)
    mislabelled = [row for row, each in enumerate(samples) if row % 12 == 11]
    seen = oracle.judge(images, labels).predicted[mislabelled]
    unseen = oracle.judge(images, labels, oracle.heads([each.image_id for each in samples])).predicted[mislabelled]
    assert seen.tolist() == labels[mislabelled].tolist(), "the head that has seen an image repeats its label"
    assert unseen.tolist() == ((labels[mislabelled] + 1) % 3).tolist()


def test_copies_of_an_image_are_never_on_both_sides():
    data = draw_photos()
    images, labels, _ = load_all(data)
    doubled = from_arrays(torch.cat([images, images]), torch.cat([labels, labels]).numpy(), classes=HUES)
    oracle = fit_probe(doubled)
    heads = oracle.heads([each.image_id for each in doubled])
    assert heads[:36].tolist() == heads[36:].tolist()


def test_the_stated_share_of_false_accepts_holds_on_held_out_images():
    data = draw_photos(20, wrong=3)
    oracle = fit_probe(data, false_accepts=0.02)
    images, labels, samples = load_all(data)
    verdicts = oracle.judge(images, labels, oracle.heads([each.image_id for each in samples]))
    answered = verdicts.keeps_label != -1
    assert int((answered & (verdicts.predicted != labels)).sum()) <= 0.02 * len(samples)
    assert oracle.quality.false_accepts == int((answered & (verdicts.predicted != labels)).sum())
    assert not bool(answered.all()), "where it is not sure enough it abstains"
    assert "abstains below" in " ".join(map(str, oracle.describe()))


def test_its_accuracy_by_class_is_told_and_kept():
    oracle = fit_probe(draw_photos(10, wrong=3))
    told = {trait.what: trait for trait in oracle.describe()}
    assert "of 30 held-out images" in told["own accuracy"].value
    assert all(name in told["by class"].value for name in HUES)
    assert "often wrong about" in told["own accuracy"].caution or "itself is right" in told["own accuracy"].caution
    assert "of 10" in oracle.provenance()["own_accuracy_by_class"]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: ProbeOracle(Colours(blind=True)).bind(HUES).fit(draw_photos()), "no better than always answering"),
        (lambda: fit_probe(draw_photos(4)), "'blue' has 4 different readable images; it takes 5"),
        (
            lambda: ProbeOracle(Colours()).bind(HUES).judge(torch.rand(1, 3, 8, 8), torch.tensor([0])),
            "fit it on labelled images",
        ),
        (lambda: ProbeOptions(false_accepts=0), "a share between 0 and 1"),
        (lambda: ProbeOptions(head="forest"), "linear or knn"),
    ],
)
def test_what_cannot_work_is_refused_in_one_line(make, said):
    with pytest.raises(BadPart, match=said):
        make()


def test_in_an_ensemble_each_member_gets_its_own_head():
    class Yes:
        def bind(self, classes):
            return self

        def judge(self, images, labels):
            return Verdicts(torch.ones(len(images), dtype=torch.int8), torch.ones(len(images)), labels)

    data = draw_photos(wrong=1)
    probe = ProbeOracle(Colours(), options=ProbeOptions(head="knn", k=1, false_accepts=0.5))
    both = EnsembleOracle([Yes(), probe]).bind(HUES)
    assert both.cross_fitted
    both = both.fit(data)
    images, labels, samples = load_all(data)
    heads = both.heads([each.image_id for each in samples])
    alone = probe.bind(HUES).fit(data)
    expected = alone.judge(images, labels, alone.heads([each.image_id for each in samples])).keeps_label
    assert both.judge(images, labels, heads).keeps_label.tolist() == [0 if each == 0 else 1 for each in expected.tolist()]
    assert both.judge(images, labels).keeps_label.tolist() == [1] * len(samples)


def test_a_run_fits_it_on_all_images_even_if_it_tests_few(tmp_path):
    run = counterfoil.evaluate(
        TinyModel(HUES), draw_photos(), generator="pixels:", oracle=ProbeOracle(Colours()), limit=4, size=8, out=tmp_path / "run",
        search={"budget": 1},
    )  # fmt: skip
    told = run.provenance["parts"]["oracle"]
    assert told["own_accuracy"].endswith("on 36 held-out images")
    assert len({trial.image_id for trial in run.trials}) == 4
