"""Sequences of words: `text` is a convolution over words, or bags of terms, or both."""
