"""Small CLIPs, a SigLIP and a vision-language model, saved as their libraries do; oracles with fixed answers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from copy import copy
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from torch import Tensor

from counterfoil.parts.contracts import Verdicts
from counterfoil.parts.oracles.scoring import ARGMAX, AcceptanceRule

CLASSES = ["red boot", "blue bag", "green dress", "hat"]


def pictures(count: int = 6, size: int = 48) -> list[Image.Image]:
    random = np.random.default_rng(0)
    shades = random.integers(0, 256, (count, 4, 4, 3), dtype=np.uint8)
    return [Image.fromarray(shade).resize((size, size), Image.Resampling.BICUBIC) for shade in shades]


def sharpen(model: torch.nn.Module) -> None:
    """Weights that make embeddings differ from image to image and from text to text."""
    random = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0, parameter[0].numel() ** -0.5 * 2, generator=random)


def _clip_tokenizer() -> Any:
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import CLIPTokenizer

    letters = sorted(ByteLevel.alphabet())
    words = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    return CLIPTokenizer(vocab={word: number for number, word in enumerate(words)}, merges=[], model_max_length=40)


def _word_tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<unk>", "</s>", "an", "a", "image", "photo", "of", "red", "blue", "green", "boot", "bag", "dress", "hat"]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>", eos_token="</s>")


def save_clip(folder: Path) -> Path:
    """A small CLIP with its tokenizer and processor."""
    from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel

    tokenizer = _clip_tokenizer()
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    ends = {
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
        "pad_token_id": tokenizer.pad_token_id,
    }
    text = {**sizes, **ends, "vocab_size": len(tokenizer), "max_position_embeddings": 40, "projection_dim": 16}
    vision = {**sizes, "image_size": 32, "patch_size": 8, "projection_dim": 16}
    torch.manual_seed(0)
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=16))
    sharpen(model)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    CLIPImageProcessor(size={"shortest_edge": 36}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def save_siglip(folder: Path) -> Path:
    """A small SigLIP likewise."""
    from transformers import SiglipConfig, SiglipImageProcessor, SiglipModel

    tokenizer = _word_tokenizer()
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    text = {**sizes, "vocab_size": len(tokenizer), "max_position_embeddings": 16, "projection_size": 32}
    torch.manual_seed(0)
    model = SiglipModel(SiglipConfig(text_config=text, vision_config={**sizes, "image_size": 32, "patch_size": 8}))
    sharpen(model)
    with torch.no_grad():
        model.logit_scale.fill_(1.5)
        model.logit_bias.fill_(-0.5)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    SiglipImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def save_openclip(folder: Path) -> Path:
    """A small model of open_clip in the layout of its hub repositories."""
    import open_clip
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    model_cfg = {
        "embed_dim": 16,
        "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8},
        "text_cfg": {"context_length": 20, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
    }
    config = {
        "model_cfg": model_cfg,
        "preprocess_cfg": {"mean": [0.4, 0.5, 0.6], "std": [0.2, 0.3, 0.4], "resize_mode": "shortest"},
    }
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    torch.manual_seed(0)
    model = open_clip.CLIP(**model_cfg)
    sharpen(model)
    save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return folder


class Fixed:
    """An oracle with the same probabilities for every batch of its size.  # (N, K)"""

    def __init__(self, probabilities: Sequence[Sequence[float]], acceptance: AcceptanceRule = ARGMAX) -> None:
        self.values = torch.tensor(probabilities)
        self.acceptance = acceptance

    def bind(self, classes: Sequence[str]) -> Fixed:
        return copy(self)

    def probabilities(self, images: Tensor) -> Tensor:
        return self.values

    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        return self.acceptance.decide(self.values, labels)


class Saying:
    """An oracle that says what it is told to, and has no probabilities."""

    def __init__(self, keeps: Sequence[int], scores: Sequence[float], predicted: Sequence[int]) -> None:
        self.verdicts = Verdicts(
            keeps_label=torch.tensor(keeps, dtype=torch.int8), scores=torch.tensor(scores), predicted=torch.tensor(predicted)
        )

    def bind(self, classes: Sequence[str]) -> Saying:
        return copy(self)

    def judge(self, images: Tensor, labels: Tensor) -> Verdicts:
        return self.verdicts


WORDS = (
    "<pad>", "<unk>", "<s>", "</s>", "<image>", "yes", "no", "Yes", "No", "USER", "ASSISTANT", ":", ".", "?", ",",
    "A", "B", "C", "D", "E", "F", "does", "this", "picture", "show", "a", "answer", "with", "or", "which", "of", "these", "is",
    "the", "main", "object", "in", "its", "letter", "red", "blue", "green", "boot", "bag", "dress", "hat",
)  # fmt: skip
CHAT = (
    "{% for message in messages %}USER : {% for part in message['content'] %}"
    "{% if part['type'] == 'image' %}<image> {% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %} ASSISTANT :{% endif %}"
)


def vlm_tokenizer(words: tuple[str, ...] = WORDS) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    found = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special)
    found.add_special_tokens({"additional_special_tokens": ["<image>"]})
    return found


def save_vlm(folder: Path, *, chat: bool = True, words: tuple[str, ...] = WORDS) -> Path:
    """A LLaVA of a small CLIP and a small Llama, with vlm_tokenizer and processor."""
    tokens = vlm_tokenizer(words)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**sizes, image_size=32, patch_size=8, projection_dim=16),
        text_config=transformers.LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=len(tokens), max_position_embeddings=256),
        image_token_id=tokens.convert_tokens_to_ids("<image>"),
        vision_feature_layer=-1,
        vision_feature_select_strategy="default",
    )
    torch.manual_seed(0)
    model = transformers.LlavaForConditionalGeneration(config)
    sharpen(model)
    model.save_pretrained(folder)
    processor = transformers.LlavaProcessor(
        transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
        tokens,
        patch_size=8,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT if chat else None,
    )
    processor.save_pretrained(folder)
    return folder
