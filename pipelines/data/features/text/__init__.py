"""Encoders of texts.

1. `sequences`    the words of a text, or the elements of an array, one number each.
2. `terms`        counts of words, pairs of words and runs of characters, which `ngrams` finds.
3. `pretokenize`  splits texts for language models, whose words are counted as ETL counts all values; `byte_words`
                  splits them at bytes.

Texts that are not UTF-8, which `utf8` finds, are refused before any of these.
"""
