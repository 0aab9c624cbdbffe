"""The signature of a model's files as OpenSSF Model Signing v1.0 has it, which its tools verify with the public key.

It is a Sigstore bundle v0.3 around an envelope of a statement, whose predicate lists each file with its SHA-256, in the order of their
paths; the subject's digest is over those digests. https://github.com/ossf/model-signing-spec"""

import json
from collections.abc import Mapping
from hashlib import sha256

from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

from pipelines.errors import ConfigError
from pipelines.lifecycle.statements.envelope import sign_values
from pipelines.lifecycle.statements.keys import PrivateKey, key_id
from pipelines.lifecycle.statements.provenance import STATEMENT_TYPE

PREDICATE_TYPE = "https://model_signing/signature/v1.0"
BUNDLE_TYPE = "application/vnd.dev.sigstore.bundle.v0.3+json"
NOT_SIGNED = "registered_model_meta"
"""A file that MLflow adds to the copy of a model that it downloads: the name and the version that were asked for."""


def sign_model_files(name: str, files: Mapping[str, str], key: PrivateKey) -> bytes:
    """The bundle that signs a model's files, given by path with their hex SHA-256. Raises ConfigError for a key of Ed25519, which these
    tools do not take."""
    if not isinstance(key, EllipticCurvePrivateKey):
        raise ConfigError("model.sig needs a key of ECDSA, and this one is of Ed25519; make one by lockstep attest --make-key FILE")
    resources = [{"name": path, "algorithm": "sha256", "digest": files[path]} for path in sorted(files, key=_path_order)]
    digest = sha256(b"".join(bytes.fromhex(resource["digest"]) for resource in resources)).hexdigest()
    serialization = {"method": "files", "hash_type": "sha256", "allow_symlinks": False, "ignore_paths": [NOT_SIGNED]}
    statement = {
        "_type": STATEMENT_TYPE,
        "subject": [{"name": name, "digest": {"sha256": digest}}],
        "predicateType": PREDICATE_TYPE,
        "predicate": {"serialization": serialization, "resources": resources},
    }
    envelope = sign_values(statement, key).to_values()
    signatures = [{"sig": signature["sig"], "keyid": ""} for signature in envelope["signatures"]]
    bundle = {
        "mediaType": BUNDLE_TYPE,
        "verificationMaterial": {"publicKey": {"hint": key_id(key.public_key())}, "tlogEntries": []},
        "dsseEnvelope": {**envelope, "signatures": signatures},
    }
    return json.dumps(bundle, indent=1).encode() + b"\n"


def _path_order(path: str) -> tuple[str, ...]:
    """Paths are compared part by part, as Python's `PurePath` does."""
    return tuple(path.split("/"))
