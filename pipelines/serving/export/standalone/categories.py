"""Encoders of categories."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

from pipelines.serving.export.standalone.columns import Column, encoder, float_values, is_null, texts


@encoder("vocabulary")
def vocabulary(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    """The number of the value, from 1; 0 for NULL, rare and unseen values."""
    places = {value: number for number, value in enumerate(state["values"], 1)}
    encoded = np.array([places.get(text, 0) for text in texts(column)], np.int32)
    return encoded, np.zeros(len(encoded), bool)


@encoder("hash")
def hash_bucket(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    """The first 8 bytes of BLAKE2b, little-endian, modulo the number of buckets. NULL is hashed as the byte FF."""
    words = [b"\xff" if text is None else text.encode() for text in texts(column)]
    buckets = [int.from_bytes(blake2b(word, digest_size=8).digest(), "little") % settings["buckets"] for word in words]
    return np.array(buckets, np.int32), np.zeros(len(words), bool)


@encoder("binary")
def binary(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    values = float_values(column)
    return (values == 1).astype(np.uint8), (values != 0) & (values != 1)


@encoder("label")
def label(settings: Mapping[str, Any], state: Mapping[str, Any], column: Column) -> tuple[np.ndarray, np.ndarray]:
    places = {value: number for number, value in enumerate(state["classes"])}
    encoded = np.array([places.get(text, -1) for text in texts(column)], np.int64)
    return encoded, is_null(column) | (encoded < 0)
