from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoProcessor, AutoTokenizer, CLIPImageProcessor, CLIPModel, SiglipImageProcessor, SiglipModel

from counterfoil.core.errors import BadPart, LabelMismatch
from counterfoil.parts.encoders.clip import phrases
from counterfoil.testing import check_oracle
from tests.parts.created import clip_oracle
from tests.parts.oracles.conftest import CLASSES, pictures, to_batch

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
    verdicts = oracle.judge(to_batch(images), LABELS)
    assert torch.allclose(oracle.probabilities(to_batch(images)), expected, atol=1e-5)
    assert torch.allclose(verdicts.scores, expected.gather(1, LABELS[:, None])[:, 0], atol=1e-5)
    assert verdicts.predicted.tolist() == expected.argmax(dim=1).tolist()
    assert verdicts.keeps_label.tolist() == (expected.argmax(dim=1) == LABELS).int().tolist()
    assert len(verdicts.predicted.unique()) > 1  # or else agreement would mean nothing


def test_pictures_are_prepared_as_the_processor_does(clip_folder: Path) -> None:
    images = [picture.resize((width, 50)) for picture, width in zip(pictures(), range(50, 56), strict=True)]
    theirs = CLIPImageProcessor.from_pretrained(clip_folder)(images=images, return_tensors="pt")["pixel_values"]
    oracle = clip_oracle(str(clip_folder))
    ours = torch.cat([oracle.encoder.preprocessing(to_batch([image])) for image in images])  # type: ignore[attr-defined]
    assert ours.shape == theirs.shape == (6, 3, 32, 32)
    assert (ours - theirs).abs().max() * 0.26 * 255 <= 1.5  # the processor rounds to 8 bits


def test_the_oracles_contract_is_kept(clip_folder: Path, siglip_folder: Path) -> None:
    check_oracle(clip_oracle(str(clip_folder)), CLASSES, size=48)
    check_oracle(clip_oracle(str(siglip_folder), threshold=0.4, below_threshold="abstain"), CLASSES, size=48)


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
    assert torch.allclose(oracle.probabilities(to_batch(images)), expected, atol=1e-5)
    assert oracle.judge(to_batch(images), LABELS).predicted.tolist() == expected.argmax(dim=1).tolist()


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


def test_text_is_embedded_once(clip_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    oracle = clip_oracle(str(clip_folder)).bind(CLASSES)
    monkeypatch.setattr(oracle.encoder, "embed_texts", lambda texts: pytest.fail("embedded again"))
    batch = to_batch(pictures())
    assert torch.equal(oracle.judge(batch, LABELS).scores, oracle.judge(batch, LABELS).scores)


def test_binding_leaves_the_unbound_oracle_as_it_was(clip_folder: Path) -> None:
    oracle = clip_oracle(str(clip_folder))
    oracle.bind(CLASSES)
    with pytest.raises(BadPart, match="bind it to class names"):
        oracle.judge(to_batch(pictures()), LABELS)


def test_gradients_reach_the_pictures(clip_folder: Path) -> None:
    batch = (to_batch(pictures()) * 0.8 + 0.1).requires_grad_()
    clip_oracle(str(clip_folder)).bind(CLASSES).probabilities(batch)[:, 0].sum().backward()
    assert batch.grad is not None
    assert (batch.grad.abs().amax(dim=(1, 2, 3)) > 0).all()


def test_thresholds_pass_through(clip_folder: Path) -> None:
    batch = to_batch(pictures())
    free = clip_oracle(str(clip_folder)).bind(CLASSES)
    top = free.probabilities(batch).amax(dim=1)
    threshold = float(top.median())
    strict = clip_oracle(str(clip_folder), threshold=threshold, below_threshold="abstain").bind(CLASSES)
    assert (strict.judge(batch, LABELS).keeps_label == -1).tolist() == (top < threshold).tolist()


def test_provenance_names_library_weights_and_prompts(clip_folder: Path) -> None:
    provenance = clip_oracle(str(clip_folder), templates=["a {class}", "the {class}"]).provenance()
    assert provenance["templates"] == "a {class} | the {class}"
    assert provenance["library"].startswith("transformers ")
    assert len(provenance["weights"]) == 64


def test_prompts_use_the_first_name_unless_it_is_taken() -> None:
    assert phrases(["tench, Tinca tinca", "hot_dog", "maillot", "maillot, tank suit"]) == [
        "tench",
        "hot dog",
        "maillot",
        "maillot, tank suit",
    ]
    with pytest.raises(LabelMismatch, match="2 classes are called 'crane'"):
        phrases(["crane", "boot", "crane"])
