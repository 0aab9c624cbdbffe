"""Sequences of words, tokens or items.

1. `text`       is a convolution over words, or bags of terms, or both.
2. `language`   is a `gpt` or an `lstm` over `windows` of tokens, with the embedding and the head of `vocabulary`.
3. `next_item`  is self-attention over what a user chose before.
4. `huggingface` is a network of Hugging Face's library over a text's tokens.
"""
