"""The digest log of a training as a statement carries it: the loss of every step, exactly, and the digest of every tensor after each saved
step. Who trains again compares with it step by step, and needs nothing else of the run."""

import json
import zlib
from base64 import b64decode, b64encode
from hashlib import sha256
from typing import Any

import numpy as np

from pipelines.errors import ConfigError
from pipelines.lifecycle.statements.materials import Descriptor
from pipelines.train.checkpoint.checkpoint_record import DigestLog

DIGEST_LOG = "digest-log"
_LARGEST_BYTES = 2**31
"""Of an unpacked log: a small one may unpack to any size."""


def digest_log_descriptor(log: DigestLog) -> Descriptor:
    """The log as a by-product of the run: JSON, compressed by zlib. A loss of a step takes 8 bytes before that."""
    steps = sorted(log.losses)
    losses = {name: _encode(values) for name, values in (("steps", np.array(steps, "<i8")), ("values", _losses(log, steps)))}
    content = json.dumps({"machine": log.machine, "losses": losses, "digests": log.digests}, sort_keys=True).encode()
    packed = zlib.compress(content, 9)
    digest = {"sha256": sha256(packed).hexdigest()}
    return {"name": DIGEST_LOG, "mediaType": "application/json+zlib", "digest": digest, "content": b64encode(packed).decode()}


def read_log_descriptor(descriptor: Descriptor) -> DigestLog:
    """Raises ConfigError for a log that is not as `digest_log_descriptor` writes it."""
    try:
        unpacker = zlib.decompressobj()
        content = unpacker.decompress(b64decode(descriptor["content"], validate=True), _LARGEST_BYTES)
        if not unpacker.eof:
            raise ValueError("it is cut, or larger than a log is")
        values: dict[str, Any] = json.loads(content)
        steps, losses = (np.frombuffer(b64decode(values["losses"][name]), kind) for name, kind in (("steps", "<i8"), ("values", "<f8")))
        digests = {int(step): dict(tensors) for step, tensors in values["digests"].items()}
        return DigestLog(dict(zip(steps.tolist(), losses.tolist(), strict=True)), digests, str(values["machine"]))
    except (zlib.error, KeyError, TypeError, AttributeError, ValueError) as error:
        raise ConfigError(f"the digest log of the statement cannot be read: {error!r}; have the statement made anew") from error


def _losses(log: DigestLog, steps: list[int]) -> np.ndarray:
    return np.array([log.losses[step] for step in steps], "<f8")


def _encode(values: np.ndarray) -> str:
    return b64encode(values.tobytes()).decode()
