"""A small vision-language model with random weights, as transformers saves one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import transformers

from tests.parts.oracles.conftest import sharpen

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


def tokenizer(words: tuple[str, ...] = WORDS) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    made = Tokenizer(models.WordLevel({word: number for number, word in enumerate(words)}, unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    found = transformers.PreTrainedTokenizerFast(tokenizer_object=made, **special)
    found.add_special_tokens({"additional_special_tokens": ["<image>"]})
    return found


def save_vlm(folder: Path, *, chat: bool = True, words: tuple[str, ...] = WORDS) -> Path:
    """A LLaVA of a small CLIP and a small Llama, with tokenizer and processor."""
    tokens = tokenizer(words)
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
