"""Small models with random weights, as transformers saves them, over the lab's tokenizer."""

from __future__ import annotations

from pathlib import Path

import torch
import transformers
from lab.training.wording import END, PAD, START, caption_tokenizer, prompt_tokenizer, words

CHAT = "{% for message in messages %}{{ message['content'] }}{% endfor %}{% if add_generation_prompt %} =>{% endif %}"


def numbers() -> dict[str, int]:
    """The special tokens' numbers, as configurations want them."""
    tokens = words()
    return {"bos_token_id": tokens.index(START), "eos_token_id": tokens.index(END), "pad_token_id": tokens.index(PAD)}


def llama(folder: Path, *, chat: bool = False, positions: int = 256) -> Path:
    """A language model that talks nonsense."""
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(words()),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        max_position_embeddings=positions,
        **numbers(),
    )
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer = prompt_tokenizer()
    tokenizer.model_max_length = positions
    if chat:
        tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    return folder


def blip2(folder: Path) -> Path:
    """A BLIP-2 of small parts, with an OPT as its language model."""
    torch.manual_seed(0)
    tokenizer = caption_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.Blip2Config(
        vision_config={**sizes, "image_size": 32, "patch_size": 8},
        qformer_config={**sizes, "encoder_hidden_size": 32, "vocab_size": len(tokenizer)},
        text_config={
            "model_type": "opt",
            "hidden_size": 32,
            "ffn_dim": 48,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "word_embed_proj_dim": 32,
            "vocab_size": len(tokenizer),
            "max_position_embeddings": 128,
            **numbers(),
        },
        num_query_tokens=4,
        image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )
    transformers.Blip2ForConditionalGeneration(config).save_pretrained(folder)
    pictures = transformers.BlipImageProcessor(size={"height": 32, "width": 32})
    transformers.Blip2Processor(pictures, tokenizer, num_query_tokens=4).save_pretrained(folder)
    return folder


def encoder_decoder(folder: Path) -> Path:
    """A ViT that looks and a GPT-2 that speaks, saved with image processor and tokenizer apart."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 2}
    looks = transformers.ViTConfig(**sizes, image_size=32, patch_size=8)
    speaks = transformers.GPT2Config(vocab_size=len(words()), n_positions=64, n_embd=32, n_layer=1, n_head=2, **numbers())
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(looks, speaks)
    config.decoder_start_token_id, config.pad_token_id = numbers()["bos_token_id"], numbers()["pad_token_id"]
    model = transformers.VisionEncoderDecoderModel(config)
    model.generation_config.decoder_start_token_id = numbers()["bos_token_id"]
    model.save_pretrained(folder)
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    caption_tokenizer().save_pretrained(folder)
    return folder


LANCE = {"garment": "subject", "colour": "adjective", "material": "adjective", "texture": "adjective"}
