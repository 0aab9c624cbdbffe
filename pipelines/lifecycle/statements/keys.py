"""Keys that sign: ECDSA on the curve P-256, or Ed25519, in PEM files."""

import os
from hashlib import sha256
from pathlib import Path
from typing import Literal, get_args

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import (
    ECDSA,
    SECP256R1,
    EllipticCurvePrivateKey,
    EllipticCurvePublicKey,
    generate_private_key,
)
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    KeySerializationEncryption,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from pipelines.errors import ConfigError
from pipelines.runtime import atomic

PASSPHRASE = "LOCKSTEP_KEY_PASSPHRASE"
"""The variable with the passphrase of a private key. It is no flag: the list of processes shows flags."""
PUBLIC_SUFFIX = ".pub"
KeyKind = Literal["p256", "ed25519"]
PrivateKey = EllipticCurvePrivateKey | Ed25519PrivateKey
PublicKey = EllipticCurvePublicKey | Ed25519PublicKey
_MAKE = "make one by lockstep attest --make-key FILE"
_PRIVATE_MARK, _PUBLIC_MARK = b"PRIVATE KEY-----", b"PUBLIC KEY-----"


def create_keys(path: str | Path, kind: KeyKind = "p256") -> Path:
    """Write a new private key, which only its owner can read, and its public key beside it, in `path`.pub. Returns the latter's path.

    The private key is encrypted if the environment has a passphrase. Raises ConfigError if one of the files is there."""
    if kind not in get_args(KeyKind):
        raise ConfigError(f"--kind is {kind!r}; choose {' or '.join(get_args(KeyKind))}")
    path, public_path = Path(path), Path(f"{path}{PUBLIC_SUFFIX}")
    if public_path.exists():
        raise ConfigError(f"--make-key {path}: {public_path} is there, and no key is written over; name another file")
    private = generate_private_key(SECP256R1()) if kind == "p256" else Ed25519PrivateKey.generate()
    passphrase = _passphrase()
    encryption: KeySerializationEncryption = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    content = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
    if not atomic.create_file(path, content, mode=0o600):
        raise ConfigError(f"--make-key {path}: the file is there, and no key is written over; name another file")
    atomic.create_file(public_path, public_pem(private.public_key()))
    return public_path


def read_private_key(path: str | Path) -> PrivateKey:
    """Raises ConfigError for a file that holds none of a supported kind, or that the passphrase does not open."""
    content = _read(path)
    if _PUBLIC_MARK in content:
        raise ConfigError(f"{path} holds a public key, and a private one signs; name the file without {PUBLIC_SUFFIX}, or {_MAKE}")
    try:
        key = load_pem_private_key(content, _passphrase())
    except TypeError as error:  # a passphrase is missing, or there is one for a key that is not encrypted
        remedy = f"unset {PASSPHRASE}" if _passphrase() else f"set {PASSPHRASE}"
        raise ConfigError(f"{path}: {_first_line(error)}; {remedy}") from error
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(
            f"{path} is no private key in PEM, or {PASSPHRASE} is not its passphrase: {_first_line(error)}; {_MAKE}"
        ) from error
    if not isinstance(key, EllipticCurvePrivateKey | Ed25519PrivateKey):
        raise _key_error(path, type(key).__name__)
    _check_curve(path, key.public_key())
    return key


def read_public_key(path: str | Path) -> PublicKey:
    """Raises ConfigError for a file that holds none of a supported kind."""
    content = _read(path)
    if _PRIVATE_MARK in content:
        raise ConfigError(f"{path} holds a private key, and a public one verifies; name the file that ends in {PUBLIC_SUFFIX}")
    return parse_public_key(content, path)


def parse_public_key(content: bytes, place: str | Path) -> PublicKey:
    """Raises ConfigError, which names the place, for PEM that holds no public key of a supported kind."""
    try:
        key = load_pem_public_key(content)
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{place} is no public key in PEM: {_first_line(error)}; {_MAKE}") from error
    if not isinstance(key, EllipticCurvePublicKey | Ed25519PublicKey):
        raise _key_error(place, type(key).__name__)
    _check_curve(place, key)
    return key


def public_pem(key: PublicKey) -> bytes:
    return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)


def key_id(key: PublicKey) -> str:
    """Hex SHA-256 of the key's PEM, as OpenSSF Model Signing names keys."""
    return sha256(public_pem(key)).hexdigest()


def sign(key: PrivateKey, content: bytes) -> bytes:
    """The signature in the usual form of its kind: DER for ECDSA with SHA-256, 64 bytes for Ed25519."""
    return key.sign(content) if isinstance(key, Ed25519PrivateKey) else key.sign(content, ECDSA(hashes.SHA256()))


def is_signature(key: PublicKey, signature: bytes, content: bytes) -> bool:
    """Whether the key's owner signed exactly these bytes."""
    try:
        if isinstance(key, Ed25519PublicKey):
            key.verify(signature, content)
        else:
            key.verify(signature, content, ECDSA(hashes.SHA256()))
    except InvalidSignature:
        return False
    return True


def _read(path: str | Path) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"the key {path} cannot be read: {error.strerror}; {_MAKE}") from error


def _passphrase() -> bytes | None:
    return os.environ.get(PASSPHRASE, "").encode() or None


def _check_curve(place: str | Path, key: PublicKey) -> None:
    if isinstance(key, EllipticCurvePublicKey) and key.curve.name != SECP256R1.name:
        raise _key_error(place, key.curve.name)


def _key_error(place: str | Path, kind: str) -> ConfigError:
    return ConfigError(f"{place} holds a key of kind {kind}; ECDSA on P-256 and Ed25519 are supported: {_MAKE}")


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
