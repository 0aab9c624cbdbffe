"""Random words as a function of a key, the same on every machine and in every version of NumPy."""

import numpy as np


def random_words(count: int, key: int | np.ndarray, counter: int | np.ndarray = 0) -> np.ndarray:
    """uint64 of shape (count,): raw Philox4x64-10 words (Salmon et al. 2011) of the key's stream, from `counter` on.

    NumPy's `Generator` is not used, since its streams may change between versions (NEP 19).
    """
    return np.random.Philox(key=key, counter=counter).random_raw(count)
