"""Envelopes by DSSE v1.0: signed bytes, with one signature or several over the same bytes.

What is signed is the payload and its type, each with its length, so that no other envelope has the same signed bytes. Beside each
signature stands its public key: who has no key of the signer still finds out whether the payload was altered, and by which key it was
signed, but not whose that is."""

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pipelines.errors import ConfigError
from pipelines.lifecycle.statements.keys import PrivateKey, PublicKey, is_signature, key_id, parse_public_key, public_pem, sign

PAYLOAD_TYPE = "application/vnd.in-toto+json"
_REMEDY = "give a file that lockstep attest has written"


@dataclass(frozen=True)
class Signature:
    key: str
    """Of the signer, as `key_id` names it."""
    content: bytes
    public_key: PublicKey | None
    """The key that the envelope has beside the signature; None if it has none."""


@dataclass(frozen=True)
class Envelope:
    payload: bytes
    """JSON of an in-toto statement."""
    signatures: tuple[Signature, ...]

    def to_values(self) -> dict[str, Any]:
        """The envelope as JSON has it."""
        signatures = [
            {"keyid": signature.key, "sig": b64encode(signature.content).decode()}
            | ({"publicKey": public_pem(signature.public_key).decode()} if signature.public_key else {})
            for signature in self.signatures
        ]
        return {"payload": b64encode(self.payload).decode(), "payloadType": PAYLOAD_TYPE, "signatures": signatures}

    def to_json(self) -> bytes:
        return json.dumps(self.to_values(), indent=1).encode() + b"\n"


def encode_for_signing(payload: bytes) -> bytes:
    """The bytes that a signature is over: DSSE's "pre-authentication encoding" of the payload."""
    return b"DSSEv1 %d %s %d %s" % (len(PAYLOAD_TYPE), PAYLOAD_TYPE.encode(), len(payload), payload)


def compact_json(values: Mapping[str, Any]) -> bytes:
    """JSON in which mappings keep their order: the features of a config are in the order of the columns that they make."""
    return json.dumps(values, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def sign_values(values: Mapping[str, Any], key: PrivateKey) -> Envelope:
    return add_signature(Envelope(compact_json(values), ()), key)


def add_signature(envelope: Envelope, key: PrivateKey) -> Envelope:
    """The envelope with a signature by `key` over the same payload, in place of an earlier one by the same key."""
    public = key.public_key()
    signature = Signature(key_id(public), sign(key, encode_for_signing(envelope.payload)), public)
    earlier = tuple(other for other in envelope.signatures if other.key != signature.key)
    return replace(envelope, signatures=(*earlier, signature))


def is_signed_by(envelope: Envelope, signature: Signature, key: PublicKey) -> bool:
    return is_signature(key, signature.content, encode_for_signing(envelope.payload))


def read_envelope(path: str | Path) -> Envelope:
    """Raises ConfigError for a file that is no envelope of an in-toto statement."""
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"--statement {path} cannot be read: {error.strerror}; {_REMEDY}") from error
    try:
        values = json.loads(content)
        if values["payloadType"] != PAYLOAD_TYPE:
            raise ValueError(f"its payloadType is {values['payloadType']!r}")
        payload = b64decode(values["payload"], validate=True)
        signatures = tuple(_parse_signature(signature, path) for signature in values["signatures"])
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError) as error:
        raise ConfigError(f"--statement {path} is no DSSE envelope of an in-toto statement: {error!r}; {_REMEDY}") from error
    if not signatures:
        raise ConfigError(f"--statement {path} has no signature; {_REMEDY}")
    return Envelope(payload, signatures)


def _parse_signature(values: Mapping[str, Any], path: str | Path) -> Signature:
    pem = values.get("publicKey")
    public_key = parse_public_key(str(pem).encode(), f"a public key in {path}") if pem else None
    return Signature(str(values.get("keyid", "")), b64decode(values["sig"], validate=True), public_key)
