"""Encoders of texts.

1. `sequences`  the words of a text, or the elements of an array, one number each.
2. `terms`      counts of words, pairs of words and runs of characters, which `ngrams` finds.
3. `tokens`     windows of bytes, characters or byte pairs over many documents; `pretokenize` splits their text, and `byte_words`
                 that of byte pairs.
4. `words`      windows of words between white space.
5. `tokenizer`  the tokens of a pretrained model.

Texts that are not UTF-8, which `utf8` finds, are refused before any of these.
"""
