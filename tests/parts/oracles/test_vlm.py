from __future__ import annotations

from pathlib import Path

import pytest
import torch
import transformers

from counterfoil.core.errors import BadPart
from counterfoil.testing import check_oracle
from tests.parts.created import vlm_oracle
from tests.parts.oracles import small_vlm
from tests.parts.oracles.conftest import CLASSES, pictures, to_batch

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
    verdicts = oracle.judge(to_batch(images), LABELS)
    tokens = small_vlm.tokenizer()
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
    before = oracle.judge(to_batch(pictures()), LABELS)
    tokens = small_vlm.tokenizer()
    words, opposite = (tokens.convert_tokens_to_ids(each) for each in (["yes", "Yes", "no", "No"], ["no", "No", "yes", "Yes"]))
    head = oracle.model.model.lm_head.weight
    with torch.no_grad():
        head[words] = head[opposite].clone()
    after = oracle.judge(to_batch(pictures()), LABELS)
    assert torch.allclose(after.scores, 1 - before.scores, atol=1e-5)
    assert after.keeps_label.tolist() == [1 - kept for kept in before.keeps_label.tolist()]
    assert after.predicted.tolist() == torch.where(after.keeps_label == 1, LABELS, -1).tolist()


def test_a_choice_goes_to_the_most_likely_letter(folder: Path) -> None:
    oracle = vlm_oracle(str(folder), mode="choice", choices=3).bind(CLASSES)
    image = pictures()[0]
    verdicts = oracle.judge(to_batch([image]), torch.tensor([2]))
    shown = oracle.choices(2)
    assert len(shown) == 3 and 2 in shown
    listed = "\n".join(f"{letter}. {CLASSES[number]}" for letter, number in zip("ABC", shown, strict=True))
    question = f"Which of these is the main object in this image?\n{listed}\nAnswer with its letter."
    logits = next_token(folder, f"USER : <image> {question} ASSISTANT :", image)
    tokens = small_vlm.tokenizer()
    chances = logits[[tokens.convert_tokens_to_ids(letter) for letter in "ABC"]].softmax(0)
    assert float(verdicts.scores[0]) == pytest.approx(float(chances[shown.index(2)]), abs=1e-5)
    assert int(verdicts.predicted[0]) == shown[int(chances.argmax())]


def test_turning_the_choices_evens_out_their_places(folder: Path) -> None:
    image = to_batch(pictures()[:1])
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


def test_the_oracles_contract_is_kept(folder: Path) -> None:
    check_oracle(vlm_oracle(str(folder)), CLASSES, size=40)
    check_oracle(vlm_oracle(str(folder), mode="choice", rotations=2, threshold=0.4, below_threshold="abstain"), CLASSES, size=40)


def test_an_answer_does_not_depend_on_other_pictures(folder: Path) -> None:
    oracle = vlm_oracle(str(folder)).bind(CLASSES)
    batch = to_batch(pictures())
    alone = torch.cat([oracle.judge(batch[at : at + 1], LABELS[at : at + 1]).scores for at in range(len(batch))])
    assert torch.equal(oracle.judge(batch, LABELS).scores, alone)


def test_a_model_without_a_chat_template_gets_its_image_mark_or_a_prompt(tmp_path: Path) -> None:
    plain = small_vlm.save_vlm(tmp_path / "plain", chat=False)
    batch, image = to_batch(pictures()[:1]), pictures()[0]
    question = f"Does this image show a {CLASSES[0]}? Answer with yes or no."
    for prompt, text in ((None, f"<image>\n{question}\n"), ("<image> USER : {question}", f"<image> USER : {question}")):
        score = vlm_oracle(str(plain), prompt=prompt).bind(CLASSES).judge(batch, LABELS[:1]).scores[0]
        logits = next_token(plain, text, image)
        tokens = small_vlm.tokenizer()
        ids = [tokens.convert_tokens_to_ids(word) for word in ("yes", "Yes", "no", "No")]
        expected = torch.stack([logits[ids[:2]].logsumexp(0), logits[ids[2:]].logsumexp(0)]).softmax(0)[0]
        assert float(score) == pytest.approx(float(expected), abs=1e-5)


def test_answers_that_its_words_cannot_tell_apart_are_refused(tmp_path: Path) -> None:
    few = tuple(word for word in small_vlm.WORDS if word.lower() != "no")
    oracle = vlm_oracle(str(small_vlm.save_vlm(tmp_path, words=few))).bind(CLASSES)
    with pytest.raises(BadPart, match="cannot tell the answer 'no' from the others"):
        oracle.judge(to_batch(pictures()[:1]), LABELS[:1])
