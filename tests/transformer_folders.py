"""Folders as Hugging Face's libraries write them, with small networks that nobody has trained."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

os.environ["HF_HUB_OFFLINE"] = "1"
import transformers

TEXTS = ("a good film of two cats", "a bad film of two dogs", "the good cat sat on the mat", "the bad dog sat on the cat")
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32, "max_position_embeddings": 24}


def write_tokenizer(folder: Path, texts: Iterable[str] = TEXTS, vocabulary: int = 80, adds_tokens: bool = True) -> Tokenizer:
    """Write a WordPiece tokenizer that is trained on the texts, with padding and truncation of its own, which are to be ignored."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=vocabulary, special_tokens=list(SPECIAL), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    if adds_tokens:
        tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    tokenizer.enable_padding(pad_id=0, pad_token="[PAD]", length=5)
    tokenizer.enable_truncation(7)
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return tokenizer


def write_network(folder: Path, kind: str = "bert", head: str = "ForSequenceClassification", seed: int = 1, **config: Any) -> Any:
    """Write a network with random weights, and its config.json; `head` is the end of its class's name."""
    names = {"bert": "Bert", "distilbert": "DistilBert", "roberta": "Roberta", "gpt2": "GPT2", "vit": "ViT"}
    torch.manual_seed(seed)
    network = getattr(transformers, f"{names[kind]}{head}")(transformers.AutoConfig.for_model(kind, **{**SMALL, **config}))
    network.save_pretrained(folder)
    return network.eval()


def write_folder(folder: Path, texts: Iterable[str] = TEXTS, **network: Any) -> Any:
    """Write a tokenizer and a network with a vector for each of its tokens. Returns the network."""
    tokenizer = write_tokenizer(folder, texts)
    return write_network(folder, **{"vocab_size": tokenizer.get_vocab_size(), **network})
