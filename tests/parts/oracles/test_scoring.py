"""Oracles that score classes or answer questions: acceptance rules, classifiers, CLIPs and a vision-language model."""

from __future__ import annotations

import hashlib
from pathlib import Path

import open_clip
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoProcessor, AutoTokenizer, CLIPModel, SiglipImageProcessor, SiglipModel

from counterfoil.core.errors import BadPart, BadWeights, LabelMismatch
from counterfoil.parts import registry
from counterfoil.parts.contracts import Oracle
from counterfoil.parts.encoders.clip import phrases
from counterfoil.parts.models.modules import ModuleModel
from counterfoil.parts.oracles.scoring import AcceptanceRule, ClassifierOptions, ClassifierOracle, classifier_oracle
from tests.parts.created import clip_oracle, openclip_oracle, vlm_oracle
from tests.parts.oracles import saved as small_vlm
from tests.parts.oracles.saved import CLASSES, pictures, sharpen
from tests.parts.scenes import to_batch

PROBABILITIES = torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.4, 0.35, 0.25]])
ZEROS = torch.tensor([0, 0, 0])


def test_the_most_probable_class_is_kept() -> None:
    verdicts = AcceptanceRule().decide(PROBABILITIES, ZEROS)
    assert verdicts.keeps_label.tolist() == [1, 0, 1]
    assert verdicts.keeps_label.dtype == torch.int8
    assert verdicts.scores.tolist() == pytest.approx([0.5, 0.2, 0.4])
    assert verdicts.predicted.tolist() == [0, 1, 0]


def test_a_margin_asks_for_a_lead() -> None:
    assert AcceptanceRule(margin=0.1).decide(PROBABILITIES, ZEROS).keeps_label.tolist() == [1, 0, 0]


@pytest.mark.parametrize(("unsure", "expected"), [("reject", [1, 0, 0]), ("abstain", [1, 0, -1])])
def test_below_the_threshold_it_is_unsure(unsure: str, expected: list[int]) -> None:
    acceptance = AcceptanceRule(threshold=0.45, below_threshold=unsure)  # type: ignore[arg-type]
    assert acceptance.decide(PROBABILITIES, ZEROS).keeps_label.tolist() == expected


def test_of_equals_the_first_is_seen() -> None:
    verdicts = AcceptanceRule().decide(torch.tensor([[0.5, 0.5]] * 2), torch.tensor([0, 1]))
    assert verdicts.keeps_label.tolist() == [1, 0]


def test_probabilities_that_are_not_finite_give_a_score_that_readers_refuse() -> None:
    spoiled = PROBABILITIES.clone()
    spoiled[1, 2] = float("nan")
    scores = AcceptanceRule().decide(spoiled, ZEROS).scores
    assert scores.isfinite().tolist() == [True, False, True]


def test_a_verdict_reads_nothing_back_from_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(*_: object) -> None:
        raise AssertionError("the host would wait for the GPU here")

    for name in ("__bool__", "item", "tolist", "__float__", "__int__"):
        monkeypatch.setattr(torch.Tensor, name, read)
    verdicts = AcceptanceRule(threshold=0.2).decide(PROBABILITIES, ZEROS)
    monkeypatch.undo()
    assert verdicts.keeps_label.tolist() == [1, 0, 1]


class Colours(nn.Module):
    """Scores red, green, blue and grey by the colours' means."""

    def forward(self, images: Tensor) -> Tensor:
        means = images.mean(dim=(2, 3))
        return 10 * torch.cat([means, 1 - means.std(dim=1, keepdim=True)], dim=1)


@pytest.fixture
def model() -> ModuleModel:
    return ModuleModel(Colours(), ["red", "green", "blue", "grey"], aliases=[["rot"], ["grün"], ["blau"], ["grau"]])


def plain(*colours: tuple[float, float, float]) -> Tensor:
    return torch.tensor(colours, dtype=torch.float32)[:, :, None, None].expand(-1, -1, 4, 4).contiguous()


def test_the_label_must_be_the_most_probable_of_the_bound_classes(model: ModuleModel) -> None:
    oracle = ClassifierOracle(model).bind(["Blue", "Red"])
    assert isinstance(oracle, Oracle)
    batch = plain((0.9, 0, 0.1), (0.9, 0, 0.1), (0.2, 0.9, 0.3))
    verdicts = oracle.judge(batch, torch.tensor([1, 0, 0]))
    expected = torch.tensor([[0.1, 0.9], [0.1, 0.9], [0.3, 0.2]]).mul(10).softmax(dim=1)
    assert verdicts.keeps_label.tolist() == [1, 0, 1]  # green and grey are not asked about
    assert verdicts.predicted.tolist() == [1, 1, 0]
    assert verdicts.scores.tolist() == pytest.approx([expected[0, 1].item(), expected[1, 0].item(), expected[2, 0].item()])


def test_aliases_of_the_model_count(model: ModuleModel) -> None:
    verdicts = ClassifierOracle(model).bind(["grun", "rot"]).judge(plain((0, 1, 0)), torch.tensor([0]))
    assert verdicts.keeps_label.tolist() == [1]


def test_classes_the_model_does_not_know_are_refused(model: ModuleModel) -> None:
    with pytest.raises(LabelMismatch, match="oracle classifier:colours: 1 of 2 classes are not among its 4"):
        ClassifierOracle(model, name="colours").bind(["red", "yellow"])


@pytest.mark.parametrize(("unsure", "expected"), [("reject", [1, 0]), ("abstain", [1, -1])])
def test_below_its_confidence_it_rejects_or_abstains(
    model: ModuleModel, monkeypatch: pytest.MonkeyPatch, unsure: str, expected: list[int]
) -> None:
    asked: list[object] = []
    monkeypatch.setattr(registry, "create", lambda *arguments: asked.append(arguments) or model)
    oracle = classifier_oracle("lab:colours", ClassifierOptions(0.9, below_threshold=unsure, options={"depth": 3}))
    assert asked == [("model", "lab:colours", {"depth": 3})]
    batch = plain((1, 0, 0), (0.5, 0.45, 0.4))
    assert oracle.bind(["red", "green", "blue"]).judge(batch, torch.tensor([0, 0])).keeps_label.tolist() == expected


LABELS = torch.tensor([0, 1, 2, 3, 0, 1])


def test_probabilities_are_those_of_transformers_itself(clip_folder: Path) -> None:
    """At the size the model sees, nothing is resized and the numbers agree to rounding."""
    images = pictures(size=32)
    processor = AutoProcessor.from_pretrained(clip_folder, do_resize=False)
    inputs = processor(text=[f"an image of {name}" for name in CLASSES], images=images, return_tensors="pt", padding=True)
    with torch.no_grad():
        expected = CLIPModel.from_pretrained(clip_folder).eval()(**inputs).logits_per_image.softmax(dim=1)
    oracle = clip_oracle(str(clip_folder)).bind(CLASSES)
    oracle.encoder.preprocessing = type(oracle.encoder.preprocessing)(  # type: ignore[attr-defined]
        mean=tuple(processor.image_processor.image_mean), std=tuple(processor.image_processor.image_std)
    )
    verdicts = oracle.judge(to_batch(*images), LABELS)
    assert torch.allclose(oracle.probabilities(to_batch(*images)), expected, atol=1e-5)
    assert torch.allclose(verdicts.scores, expected.gather(1, LABELS[:, None])[:, 0], atol=1e-5)
    assert verdicts.predicted.tolist() == expected.argmax(dim=1).tolist()
    assert verdicts.keeps_label.tolist() == (expected.argmax(dim=1) == LABELS).int().tolist()
    assert len(verdicts.predicted.unique()) > 1  # or else agreement would mean nothing


def test_siglip_scores_by_sigmoid_as_transformers_does(siglip_folder: Path) -> None:
    images = pictures(size=32)
    texts = [f"an image of {name}" for name in CLASSES]
    tokens = AutoTokenizer.from_pretrained(siglip_folder)(texts, padding="max_length", max_length=16, return_tensors="pt")
    pixels = SiglipImageProcessor.from_pretrained(siglip_folder)(images=images, return_tensors="pt")["pixel_values"]
    with torch.no_grad():
        answer = SiglipModel.from_pretrained(siglip_folder).eval()(
            input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"], pixel_values=pixels
        )
    expected = answer.logits_per_image.sigmoid()
    oracle = clip_oracle(str(siglip_folder)).bind(CLASSES)
    assert torch.allclose(oracle.probabilities(to_batch(*images)), expected, atol=1e-5)
    assert oracle.judge(to_batch(*images), LABELS).predicted.tolist() == expected.argmax(dim=1).tolist()


def test_several_templates_are_averaged_in_the_embedding_space(clip_folder: Path) -> None:
    templates = ["an image of {class}", "a photo of the {class}, tinted"]
    model, tokenizer = CLIPModel.from_pretrained(clip_folder).eval(), AutoTokenizer.from_pretrained(clip_folder)
    with torch.no_grad():
        rows = []
        for name in CLASSES:
            tokens = tokenizer([template.replace("{class}", name) for template in templates], padding=True, return_tensors="pt")
            embedded = model.get_text_features(**tokens).pooler_output
            mean = (embedded / embedded.norm(dim=1, keepdim=True)).mean(dim=0)
            rows.append(mean / mean.norm())
    oracle = clip_oracle(str(clip_folder), templates=templates).bind(CLASSES)
    assert oracle._texts is not None
    assert torch.allclose(oracle._texts, torch.stack(rows), atol=1e-5)


def test_thresholds_pass_through(clip_folder: Path) -> None:
    batch = to_batch(*pictures())
    free = clip_oracle(str(clip_folder)).bind(CLASSES)
    top = free.probabilities(batch).amax(dim=1)
    threshold = float(top.median())
    strict = clip_oracle(str(clip_folder), threshold=threshold, below_threshold="abstain").bind(CLASSES)
    assert (strict.judge(batch, LABELS).keeps_label == -1).tolist() == (top < threshold).tolist()


def test_prompts_use_the_first_name_unless_it_is_taken() -> None:
    assert phrases(["tench, Tinca tinca", "hot_dog", "maillot", "maillot, tank suit"]) == [
        "tench",
        "hot dog",
        "maillot",
        "maillot, tank suit",
    ]
    with pytest.raises(LabelMismatch, match="2 classes are called 'crane'"):
        phrases(["crane", "boot", "crane"])


LABELS = torch.tensor([0, 1, 2, 3, 0, 1])


def test_open_clips_probabilities_are_its_own(openclip_folder: Path) -> None:
    images = pictures(size=32)
    name = f"local-dir:{openclip_folder}"
    model, _, transform = open_clip.create_model_and_transforms(name)
    text = open_clip.get_tokenizer(name)([f"an image of {word}" for word in CLASSES])
    with torch.no_grad():
        expected = model.eval().get_logits(torch.stack([transform(image) for image in images]), text)[0].softmax(dim=1)
    oracle = openclip_oracle(str(openclip_folder)).bind(CLASSES)
    verdicts = oracle.judge(to_batch(*images), LABELS)
    assert torch.allclose(oracle.probabilities(to_batch(*images)), expected, atol=1e-5)
    assert verdicts.predicted.tolist() == expected.argmax(dim=1).tolist()
    assert len(verdicts.predicted.unique()) > 1


def test_pictures_are_prepared_as_open_clip_does(openclip_folder: Path) -> None:
    images = pictures(size=50)
    _, _, transform = open_clip.create_model_and_transforms(f"local-dir:{openclip_folder}")
    theirs = torch.stack([transform(image) for image in images])
    ours = openclip_oracle(str(openclip_folder)).encoder.preprocessing(to_batch(*images))  # type: ignore[attr-defined]
    assert (ours - theirs).abs().max() * 0.2 * 255 <= 1.7


@pytest.fixture(scope="module")
def small_file(tmp_path_factory: pytest.TempPathFactory, openclip_folder: Path) -> Path:
    """A checkpoint for an architecture that is made known to open_clip under the name `small-test`."""
    folder = tmp_path_factory.mktemp("configs")
    import json

    config = json.loads((openclip_folder / "open_clip_config.json").read_text())["model_cfg"]
    (folder / "small-test.json").write_text(json.dumps(config))
    open_clip.add_model_config(folder / "small-test.json")
    model = open_clip.create_model("small-test")
    sharpen(model)
    save_file(model.state_dict(), folder / "weights.safetensors")
    return folder / "weights.safetensors"


def test_an_architecture_takes_weights_from_a_file(small_file: Path) -> None:
    oracle = openclip_oracle(f"small-test/{small_file}", sha256=hashlib.sha256(small_file.read_bytes()).hexdigest())
    loaded = oracle.encoder.model.state_dict()  # type: ignore[attr-defined]
    assert all(torch.equal(value, loaded[key]) for key, value in load_file(small_file).items())
    with pytest.raises(BadWeights, match="SHA-256 is"):
        openclip_oracle(f"small-test/{small_file}", sha256="0" * 64)


def test_weights_trained_with_quick_gelu_get_it(small_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_clip, "get_pretrained_cfg", lambda *_: {"url": "x", "quick_gelu": True, "mean": (0.1, 0.2, 0.3)})
    monkeypatch.setattr(open_clip, "download_pretrained", lambda *_: str(small_file))
    encoder = registry.create("encoder", "openclip:small-test/openai")
    assert any(type(module).__name__ == "QuickGELU" for module in encoder.model.modules())
    assert encoder.preprocessing.mean == (0.1, 0.2, 0.3)
    plain = registry.create("encoder", f"openclip:small-test/{small_file}")
    assert not any(type(module).__name__ == "QuickGELU" for module in plain.model.modules())


LABELS = torch.tensor([0, 1, 2, 3, 0, 1])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_vlm.save_vlm(tmp_path_factory.mktemp("vlm"))


def next_token(folder: Path, text: str, image: object) -> torch.Tensor:
    """The logits of what follows a text, by transformers itself."""
    processor = transformers.AutoProcessor.from_pretrained(folder)
    model = transformers.AutoModelForImageTextToText.from_pretrained(folder).eval()
    with torch.no_grad():
        return model(**processor(text=[text], images=[image], return_tensors="pt")).logits[0, -1]


def test_yes_and_no_are_compared_as_transformers_gives_them(folder: Path) -> None:
    oracle = vlm_oracle(str(folder)).bind(CLASSES)
    images = pictures()
    verdicts = oracle.judge(to_batch(*images), LABELS)
    tokens = small_vlm.vlm_tokenizer()
    yes, no = (torch.tensor([tokens.convert_tokens_to_ids(word) for word in words]) for words in (["yes", "Yes"], ["no", "No"]))
    for image, label, score, keeps in zip(images, LABELS, verdicts.scores, verdicts.keeps_label, strict=True):
        question = f"Does this image show a {CLASSES[label]}? Answer with yes or no."
        logits = next_token(folder, f"USER : <image> {question} ASSISTANT :", image)
        expected = torch.stack([logits[yes].logsumexp(0), logits[no].logsumexp(0)]).softmax(0)[0]
        assert float(score) == pytest.approx(float(expected), abs=1e-5)
        assert bool(keeps) == bool(expected > 0.5)
    assert verdicts.scores.max() - verdicts.scores.min() > 0.05  # or else agreement would mean nothing
    assert verdicts.predicted.tolist() == torch.where(verdicts.keeps_label == 1, LABELS, -1).tolist()


def test_who_says_the_opposite_is_taken_at_its_word(folder: Path) -> None:
    oracle = vlm_oracle(str(folder)).bind(CLASSES)
    before = oracle.judge(to_batch(*pictures()), LABELS)
    tokens = small_vlm.vlm_tokenizer()
    words, opposite = (tokens.convert_tokens_to_ids(each) for each in (["yes", "Yes", "no", "No"], ["no", "No", "yes", "Yes"]))
    head = oracle.model.model.lm_head.weight
    with torch.no_grad():
        head[words] = head[opposite].clone()
    after = oracle.judge(to_batch(*pictures()), LABELS)
    assert torch.allclose(after.scores, 1 - before.scores, atol=1e-5)
    assert after.keeps_label.tolist() == [1 - kept for kept in before.keeps_label.tolist()]
    assert after.predicted.tolist() == torch.where(after.keeps_label == 1, LABELS, -1).tolist()


def test_a_choice_goes_to_the_most_likely_letter(folder: Path) -> None:
    oracle = vlm_oracle(str(folder), mode="choice", choices=3).bind(CLASSES)
    image = pictures()[0]
    verdicts = oracle.judge(to_batch(image), torch.tensor([2]))
    shown = oracle.choices(2)
    assert len(shown) == 3 and 2 in shown
    listed = "\n".join(f"{letter}. {CLASSES[number]}" for letter, number in zip("ABC", shown, strict=True))
    question = f"Which of these is the main object in this image?\n{listed}\nAnswer with its letter."
    logits = next_token(folder, f"USER : <image> {question} ASSISTANT :", image)
    tokens = small_vlm.vlm_tokenizer()
    chances = logits[[tokens.convert_tokens_to_ids(letter) for letter in "ABC"]].softmax(0)
    assert float(verdicts.scores[0]) == pytest.approx(float(chances[shown.index(2)]), abs=1e-5)
    assert int(verdicts.predicted[0]) == shown[int(chances.argmax())]


def test_turning_the_choices_evens_out_their_places(folder: Path) -> None:
    image = to_batch(*pictures()[:1])
    everything = vlm_oracle(str(folder), mode="choice", choices=4, rotations=4).bind(CLASSES)
    chances = torch.cat([everything.judge(image, torch.tensor([label])).scores for label in range(4)])
    # Over all turns every class stands once at every letter; the shares of one image add up to one for each label.
    totals = [everything._chooses(image[0], label) for label in range(4)]
    assert all(float(total.sum()) == pytest.approx(1, abs=1e-5) for total in totals)
    assert torch.allclose(chances, torch.stack([total[label] for label, total in enumerate(totals)]), atol=1e-6)


def test_what_is_shown_is_the_same_every_time_and_varies_with_the_label(folder: Path) -> None:
    names = [f"thing {number}" for number in range(30)]
    first, again = (vlm_oracle(str(folder), mode="choice").bind(names) for _ in range(2))
    shown = [first.choices(label) for label in range(30)]
    assert shown == [again.choices(label) for label in range(30)]
    assert all(label in each and len(set(each)) == 4 for label, each in enumerate(shown))
    assert len({each.index(label) for label, each in enumerate(shown)}) == 4  # the truth stands at every place


def test_a_model_without_a_chat_template_gets_its_image_mark_or_a_prompt(tmp_path: Path) -> None:
    plain = small_vlm.save_vlm(tmp_path / "plain", chat=False)
    batch, image = to_batch(*pictures()[:1]), pictures()[0]
    question = f"Does this image show a {CLASSES[0]}? Answer with yes or no."
    for prompt, text in ((None, f"<image>\n{question}\n"), ("<image> USER : {question}", f"<image> USER : {question}")):
        score = vlm_oracle(str(plain), prompt=prompt).bind(CLASSES).judge(batch, LABELS[:1]).scores[0]
        logits = next_token(plain, text, image)
        tokens = small_vlm.vlm_tokenizer()
        ids = [tokens.convert_tokens_to_ids(word) for word in ("yes", "Yes", "no", "No")]
        expected = torch.stack([logits[ids[:2]].logsumexp(0), logits[ids[2:]].logsumexp(0)]).softmax(0)[0]
        assert float(score) == pytest.approx(float(expected), abs=1e-5)


def test_answers_that_its_words_cannot_tell_apart_are_refused(tmp_path: Path) -> None:
    few = tuple(word for word in small_vlm.WORDS if word.lower() != "no")
    oracle = vlm_oracle(str(small_vlm.save_vlm(tmp_path, words=few))).bind(CLASSES)
    with pytest.raises(BadPart, match="cannot tell the answer 'no' from the others"):
        oracle.judge(to_batch(*pictures()[:1]), LABELS[:1])
