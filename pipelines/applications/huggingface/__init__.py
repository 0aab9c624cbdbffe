"""Transformers of Hugging Face's library that classify texts.

1. `settings`  has the encoder `tokenizer` and the task `huggingface`.
2. `encoders`  is the tokenizer of a pretrained model.
3. `task`      is its network.
"""
