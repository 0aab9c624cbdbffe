"""Statements: what a signer signs, what a verifier compares, and every forgery by its name."""

import json
import logging
import shutil
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google.protobuf import json_format
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement as InTotoStatement
from statements import SignedRun, Values, seal_sections, sign_run
from trainings import open_dataset
from versions import write_version

from pipelines.commands import COMMANDS
from pipelines.config.load import parse
from pipelines.data.versions.commit import commit
from pipelines.errors import ConfigError, CorruptError, DatasetError, MismatchError, TrainingError
from pipelines.lifecycle.statements.attest import write_envelope
from pipelines.lifecycle.statements.checks import list_differences
from pipelines.lifecycle.statements.dataset_record import compare_datasets, dataset_descriptor, read_row_digests
from pipelines.lifecycle.statements.digest_log import digest_log_descriptor, read_log_descriptor
from pipelines.lifecycle.statements.envelope import add_signature, compact_json, encode_for_signing, read_envelope
from pipelines.lifecycle.statements.finished_run import check_packages, portable_config
from pipelines.lifecycle.statements.keys import PASSPHRASE, create_keys, is_signature, read_private_key, read_public_key, sign
from pipelines.lifecycle.statements.materials import record_digest
from pipelines.lifecycle.statements.provenance import parse_statement
from pipelines.lifecycle.statements.verification import Verification, VerificationRequest, check_statement, read_statement_config
from pipelines.runtime.progress import speak
from pipelines.train.checkpoint.checkpoint_record import DigestLog


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> SignedRun:
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_HOME", str(folder))
        return sign_run(folder)


@pytest.fixture
def run(first_run: SignedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SignedRun:
    """A run whose statement and model are this test's own."""
    monkeypatch.setenv("LOCKSTEP_HOME", str(first_run.statement.parent))
    shutil.copytree(first_run.model, tmp_path / "model")
    copied_run = replace(first_run, statement=tmp_path / "S.json", model=tmp_path / "model")
    copied_run.write(copied_run.values)
    return copied_run


def verify_digests(run: SignedRun, **request: Any) -> Verification:
    return check_statement(VerificationRequest(run.statement, **{"key": run.public, "model": run.model, "digests_only": True, **request}))


def build(values: Values) -> Values:
    definition: Values = values["predicate"]["buildDefinition"]
    return definition


def dependency(values: Values, name: str) -> Values:
    return next(descriptor for descriptor in build(values)["resolvedDependencies"] if descriptor["name"] == name)


def forge_rows(values: Values) -> None:
    dependency(values, "dataset")["annotations"]["splits"]["train"]["sha256"] = "0" * 64
    dependency(values, "dataset")["digest"]["sha256"] = "1" * 64


def forge_weights(values: Values) -> None:
    next(subject for subject in values["subject"] if "safetensors" in subject["name"])["digest"]["sha256"] = "0" * 64


def forge_config(values: Values) -> None:
    build(values)["externalParameters"]["config"]["train"]["lr"] = 0.5


def forge_code(values: Values) -> None:
    dependency(values, "code")["annotations"]["files"]["code/pipelines.zip"] = "0" * 64


def forge_environment(values: Values) -> None:
    dependency(values, "package/torch")["uri"] = "pkg:pypi/torch@9.9"


def forge_time(values: Values) -> None:
    values["predicate"]["runDetails"]["metadata"]["finishedOn"] = "2001-01-01T00:00:00Z"


def forge_order(values: Values) -> None:
    build(values)["internalParameters"]["order"]["sha256"] = "0" * 64


def forge_encoder_state(values: Values) -> None:
    dependency(values, "dataset")["annotations"]["encoders"]["x3"] = "0" * 64


FORGERIES: dict[str, Callable[[Values], None]] = {
    "rows": forge_rows,
    "weights": forge_weights,
    "config": forge_config,
    "code": forge_code,
    "environment": forge_environment,
    "time": forge_time,
    "order": forge_order,
    "encoder state": forge_encoder_state,
}


def test_what_is_as_it_was_signed_is_right(run: SignedRun) -> None:
    verification = verify_digests(run)
    assert verification.is_right and not verification.trained
    names = [check.name for check in verification.checks if check.outcome == "right"]
    assert {*FORGERIES, "signature", "key"} == {*names}


@pytest.mark.parametrize("part", FORGERIES)
def test_who_has_the_key_and_alters_a_part_is_caught_by_its_name(run: SignedRun, part: str) -> None:
    run.write(seal_sections(run.alter(FORGERIES[part])))
    assert verify_digests(run).differences == [part]


@pytest.mark.parametrize("part", FORGERIES)
def test_who_has_no_key_and_alters_a_part_is_caught_by_the_signature_and_the_part(run: SignedRun, part: str) -> None:
    run.alter_payload(FORGERIES[part])
    assert verify_digests(run).differences == ["signature", part]
    assert verify_digests(run, key="").differences == ["signature", part], "the public key stands in the envelope"


def test_another_s_key_is_caught_and_named(run: SignedRun, tmp_path: Path) -> None:
    create_keys(tmp_path / "other.pem")
    run.write(run.values, tmp_path / "other.pem")
    verification = verify_digests(run)
    assert verification.differences == ["key"]
    assert verify_digests(run, key="").is_right, "without a key, anybody may have signed, which is said"


def test_another_s_name_on_the_own_signature_is_no_signature(run: SignedRun, tmp_path: Path) -> None:
    create_keys(tmp_path / "other.pem")
    honest = json.loads(run.statement.read_bytes())["signatures"][0]["keyid"]
    run.write(run.values, tmp_path / "other.pem")
    values = json.loads(run.statement.read_bytes())
    values["signatures"][0]["keyid"] = honest
    run.statement.write_text(json.dumps(values))
    assert verify_digests(run).differences == ["signature"]
    assert verify_digests(run, key="").differences == ["signature"]


def test_rows_that_were_exchanged_with_all_their_checksums_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever can write files can write checksums: index, manifest and Parquet agree, and only the values tell."""
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    run = sign_run(tmp_path)
    version = open_dataset(run.config)
    arrays = {
        column.name: np.concatenate([np.zeros(group.rows, column.dtype) for group in version.split_row_groups("train")])
        for column in version.columns
    }
    other = write_version(tmp_path / "other", {"train": [arrays]})
    digests = [group.digest for group in version.split_row_groups("train")]
    groups = [replace(group, digest=digest) for group, digest in zip(other.row_groups, digests, strict=True)]
    other_splits = [group for group in version.row_groups if group.split != "train"]
    root = Path(version.root)
    for group in groups:
        (root / group.file).parent.mkdir(parents=True, exist_ok=True)
        (root / group.file).write_bytes(Path(other.root, group.file).read_bytes())
    (root / "manifest.json").unlink()
    manifest = version.manifest.model_copy(update={"attempt": version.manifest.attempt})
    commit(version.filesystem, version.root, manifest, [*groups, *other_splits])
    assert open_dataset(run.config).digest == version.digest, "nothing else notices"
    assert verify_digests(run).differences == ["rows"]


def test_the_same_rows_in_another_order_are_told_from_other_rows(tmp_path: Path) -> None:
    values = {"x": np.arange(50, dtype="f4"), "label": np.arange(50) % 2}

    def describe(name: str, arrays: dict[str, np.ndarray]) -> Values:
        version = write_version(tmp_path / name, {"train": [arrays]})
        splits = {"train": version.manifest.splits["train"].model_copy(update={"rows_digest": "claimed"})}
        manifest = version.manifest.model_copy(update={"splits": splits})
        return dataset_descriptor(read_row_digests(replace(version, manifest=manifest)))

    first = describe("first", values)
    assert first["annotations"]["splits"]["train"]["rows_digest"] not in ("", "claimed"), "it is computed anew"
    reversed_rows = {name: array[::-1].copy() for name, array in values.items()}
    assert compare_datasets(first, describe("again", values)) == {}
    assert compare_datasets(first, describe("reversed", reversed_rows)) == {"order": ["train"]}
    assert compare_datasets(first, describe("other", {**values, "x": values["x"] + 1})) == {"rows": ["train"]}
    first["annotations"]["splits"]["train"]["rows_digest"] = "0" * 64
    assert compare_datasets(first, describe("forged", values)) == {"rows": ["train"]}


def test_a_file_of_the_model_that_is_altered_more_or_gone_is_found(run: SignedRun) -> None:
    (run.model / "extra.py").write_text("")
    assert verify_digests(run).differences == ["weights"]
    (run.model / "extra.py").unlink()
    (run.model / "MLmodel").unlink()
    assert verify_digests(run).differences == ["weights"]


def test_another_config_of_the_verifier_is_a_difference(run: SignedRun) -> None:
    other = run.config.model_copy(update={"train": run.config.train.model_copy(update={"lr": 0.5, "workers": 3})})
    verification = check_statement(VerificationRequest(run.statement, run.public, digests_only=True), other)
    (check,) = [check for check in verification.checks if check.outcome == "differs"]
    assert (check.name, check.text) == ("config", "train.lr is 0.01 in the statement, and 0.5 in the config given; 1 settings differ")


def test_another_config_says_where_and_on_how_many_workers(run: SignedRun, tmp_path: Path) -> None:
    train = run.config.train.model_copy(update={"workers": 3, "storage": f"{tmp_path}/elsewhere"})
    other = parse(run.config.model_copy(update={"train": train}).model_dump(mode="json"), "other", recorded=True)
    assert check_statement(VerificationRequest(run.statement, run.public, digests_only=True), other).is_right
    statement = parse_statement(read_envelope(run.statement).payload, "S.json")
    placed_config = read_statement_config(statement, other, has_key=True)
    assert (placed_config.train.workers, placed_config.train.storage) == (3, f"{tmp_path}/elsewhere")
    assert read_statement_config(statement, None, has_key=True).train.workers == run.config.train.workers


def test_code_and_environment_may_differ_if_the_verifier_says_so_and_nothing_else(run: SignedRun) -> None:
    run.write(seal_sections(run.alter(forge_environment)))
    verification = verify_digests(run, accept=["environment"])
    assert verification.is_right and list_differences(verification.checks) == ["environment"]
    with pytest.raises(ConfigError, match=r"--accept is 'rows', and only code and environment may differ; leave it out"):
        verify_digests(run, accept=["rows"])
    for request in ({"sign": run.private}, {"sign": run.private, "accept": ["code"], "digests_only": False}):
        with pytest.raises(ConfigError, match="only what was made again and does not differ is signed"):
            verify_digests(run, **request)


@pytest.mark.parametrize(("number", "remedy"), [("0", "have it made anew"), ("2", "upgrade Lockstep")])
def test_an_older_and_a_newer_format_are_one_clear_error(run: SignedRun, number: str, remedy: str) -> None:
    def change(values: Values) -> None:
        build(values)["buildType"] = f"lockstep:training/v{number}"

    run.write(seal_sections(run.alter(change)))
    with pytest.raises(ConfigError, match=rf"S.json has format {number}; this version of Lockstep reads format 1: {remedy}"):
        verify_digests(run)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is no DSSE envelope"),
        ("[]", "is no DSSE envelope"),
        ('{"payloadType": "text/plain"}', "its payloadType is 'text/plain'"),
        ('{"payloadType": "application/vnd.in-toto+json", "payload": "e30=", "signatures": []}', "has no signature"),
        ('{"payloadType": "application/vnd.in-toto+json", "payload": "*", "signatures": [{"sig": ""}]}', "is no DSSE envelope"),
        ('{"payloadType": "application/vnd.in-toto+json", "payload": "e30=", "signatures": [{"sig": ""}]}', "lacks what a statement has"),
    ],
)
def test_what_is_no_statement_is_one_clear_error(run: SignedRun, content: str, message: str) -> None:
    run.statement.write_text(content)
    with pytest.raises(ConfigError, match=message) as error:
        verify_digests(run)
    assert str(error.value).endswith("give a file that lockstep attest has written")
    run.write(run.values)
    assert verify_digests(run).is_right, "the remedy"


def test_a_statement_of_somebody_else_s_type_is_refused_by_name(run: SignedRun) -> None:
    for name, value in (("predicateType", "https://spdx.dev/Document"), ("buildType", "https://example.org/workflow")):
        values = run.alter(lambda values: None)
        (values if name in values else build(values))[name] = value
        run.write(values)
        with pytest.raises(ConfigError, match=value):
            verify_digests(run)


def test_code_in_a_statement_is_not_run_without_a_key(run: SignedRun) -> None:
    def change(values: Values) -> None:
        build(values)["externalParameters"]["config"]["task"]["source"] = "raise SystemExit"

    run.write(seal_sections(run.alter(change)))
    with pytest.raises(ConfigError, match=r"holds code of its own, task.source, which would be run here; give --key"):
        verify_digests(run, key="")


def test_it_is_a_statement_for_in_toto_s_own_library(run: SignedRun) -> None:
    payload = read_envelope(run.statement).payload
    message = json_format.Parse(payload, statement_pb2.Statement())
    InTotoStatement.copy_from_pb(message).validate()
    assert payload == compact_json(run.values)
    assert [subject["name"] for subject in run.values["subject"]] == sorted(subject["name"] for subject in run.values["subject"])


def test_signatures_are_over_dsse_s_encoding_and_are_added_once_each(run: SignedRun, tmp_path: Path) -> None:
    assert encode_for_signing(b"hello") == b"DSSEv1 28 application/vnd.in-toto+json 5 hello"
    create_keys(tmp_path / "second.pem", "ed25519")
    envelope = read_envelope(run.statement)
    second = read_private_key(tmp_path / "second.pem")
    both = add_signature(add_signature(envelope, second), second)
    assert len(both.signatures) == 2 and both.payload == envelope.payload
    run.statement.write_bytes(both.to_json())
    assert verify_digests(run).is_right and verify_digests(run, key=f"{tmp_path}/second.pem.pub").is_right
    values = json.loads(run.statement.read_bytes())
    values["signatures"][1]["sig"] = values["signatures"][0]["sig"]
    run.statement.write_text(json.dumps(values))
    assert verify_digests(run).differences == ["signature"], "a counter-signature that is none is found too"


@pytest.mark.parametrize("kind", ["p256", "ed25519"])
def test_keys_sign_are_kept_secret_and_never_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any) -> None:
    monkeypatch.setenv(PASSPHRASE, "a secret")
    public = read_public_key(create_keys(tmp_path / "key.pem", kind))
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600 and b"ENCRYPTED" in (tmp_path / "key.pem").read_bytes()
    signature = sign(read_private_key(tmp_path / "key.pem"), b"content")
    assert is_signature(public, signature, b"content") and not is_signature(public, signature, b"Content")
    assert not is_signature(public, b"", b"content")
    with pytest.raises(ConfigError, match="no key is written over; name another file"):
        create_keys(tmp_path / "key.pem", kind)
    monkeypatch.setenv(PASSPHRASE, "another")
    with pytest.raises(ConfigError, match=rf"or {PASSPHRASE} is not its passphrase"):
        read_private_key(tmp_path / "key.pem")
    monkeypatch.delenv(PASSPHRASE)
    with pytest.raises(ConfigError, match=f"; set {PASSPHRASE}"):
        read_private_key(tmp_path / "key.pem")
    create_keys(tmp_path / "plain.pem", kind)
    monkeypatch.setenv(PASSPHRASE, "a secret")
    with pytest.raises(ConfigError, match=f"; unset {PASSPHRASE}"):
        read_private_key(tmp_path / "plain.pem")


def test_keys_of_the_other_half_and_of_other_kinds_are_refused(tmp_path: Path) -> None:
    public = create_keys(tmp_path / "key.pem")
    with pytest.raises(ConfigError, match=r"holds a public key, and a private one signs; name the file without \.pub"):
        read_private_key(public)
    with pytest.raises(ConfigError, match=r"holds a private key, and a public one verifies; name the file that ends in \.pub"):
        read_public_key(tmp_path / "key.pem")
    for private in (rsa.generate_private_key(65537, 2048), ec.generate_private_key(ec.SECP384R1())):
        (tmp_path / "other.pem").write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        with pytest.raises(ConfigError, match="ECDSA on P-256 and Ed25519 are supported: make one by lockstep attest --make-key FILE"):
            read_private_key(tmp_path / "other.pem")
    for read in (read_private_key, read_public_key):
        (tmp_path / "none.pem").write_text("nothing")
        with pytest.raises(ConfigError, match="make one by lockstep attest"):
            read(tmp_path / "none.pem")
        with pytest.raises(ConfigError, match="cannot be read: No such file"):
            read(tmp_path / "gone.pem")


def test_the_digest_log_comes_back_exactly_also_with_gaps_and_odd_numbers() -> None:
    log = DigestLog({1: 0.1 + 0.2, 2: float("inf"), 7: 5e-324}, {7: {"a.b": "ff"}}, "a machine")
    assert read_log_descriptor(digest_log_descriptor(log)) == log
    descriptor = digest_log_descriptor(log)
    with pytest.raises(ConfigError, match="the digest log of the statement cannot be read"):
        read_log_descriptor({**descriptor, "content": descriptor["content"][:-8]})


def test_a_package_s_digest_does_not_depend_on_who_installed_it() -> None:
    lines = ["a/b.py,sha256=x,3", "a-1.dist-info/METADATA,sha256=y,4"]
    extra = ["../../../bin/a,sha256=z,9", "a/__pycache__/b.pyc,,", "a-1.dist-info/INSTALLER,sha256=q,3", "a-1.dist-info/RECORD,,"]
    assert record_digest("\n".join(lines)) == record_digest("\n".join([*extra, *reversed(lines)]))
    assert record_digest("\n".join(lines)) != record_digest("\n".join(lines).replace("=x", "=w"))


def test_paths_below_home_are_relative_and_others_stay(run: SignedRun) -> None:
    folder = run.config.dataset.path.removesuffix("/data")
    values = portable_config(run.config)
    assert values["dataset"]["path"] == "data" and values["train"]["storage"] == "runs"
    assert values["tracking"]["uri"] == "sqlite:///mlflow.db" and folder not in json.dumps(values)
    text = run.config.model_copy(update={"source": run.config.source.model_copy(update={"query": f"{folder}/points"})})
    assert portable_config(text)["source"]["query"] == f"{folder}/points", "a text that no command resolves"
    assert parse(values, "again", recorded=True).data_identity == run.config.data_identity


def test_a_config_keeps_the_order_of_its_features_which_is_that_of_columns(run: SignedRun) -> None:
    def change(values: Values) -> None:
        section = build(values)["externalParameters"]["config"]["dataset"]
        section["features"] = dict(reversed(section["features"].items()))

    statement = parse_statement(read_envelope(run.statement).payload, "S.json")
    assert list(statement.config["dataset"]["features"]) == list(run.config.dataset.features)
    run.alter_payload(change)
    assert verify_digests(run).differences == ["signature", "config"]


def test_a_seed_that_hides_people_is_not_published_and_such_a_run_is_not_trained_again(run: SignedRun) -> None:
    def change(values: Values) -> None:
        parameters = build(values)
        parameters["internalParameters"] |= {"withheld": ["train.seed"], "identities": {}, "order": {}}
        del parameters["externalParameters"]["config"]["train"]["seed"]

    run.write(seal_sections(run.alter(change)))
    assert verify_digests(run).is_right
    with pytest.raises(TrainingError, match=r"withholds train.seed, without which .*; compare digests by --digests-only"):
        verify_digests(run, digests_only=False)


def test_a_run_that_depends_on_workers_is_compared_by_digests_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    run = sign_run(tmp_path, strategy="ddp")
    with pytest.raises(TrainingError, match=r"strategy ddp, whose weights depend .*, or compare digests by --digests-only"):
        verify_digests(run, digests_only=False)
    assert verify_digests(run).is_right


def test_the_command_prints_each_check_as_json_and_its_exit_code_decides(
    run: SignedRun, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # those of the command write to this test's output
    arguments = ["--statement", str(run.statement), "--key", str(run.public), "--digests-only", "--json"]

    def run_command() -> tuple[int, list[dict[str, Any]]]:
        with pytest.raises(SystemExit) as ended:
            COMMANDS["verify"]("lockstep verify", arguments)
        lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        return int(ended.value.code or 0), lines

    try:
        code, lines = run_command()
        assert code == 0 and lines[-1]["event"] == "result" and lines[-1]["differs"] == []
        assert {"name": "rows", "outcome": "right"}.items() <= next(line for line in lines if line.get("name") == "rows").items()
        run.alter_payload(forge_time)
        code, lines = run_command()
        assert (code, lines[-1]["differs"]) == (1, ["signature", "time"])
    finally:
        speak("text")
    with pytest.raises(ConfigError, match="which names its own run; leave it out"):
        COMMANDS["verify"]("lockstep verify", [*arguments, "--run", "1f"])


def test_the_command_makes_keys_and_asks_for_what_it_needs(run: SignedRun, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    COMMANDS["attest"]("lockstep attest", ["--make-key", str(tmp_path / "new.pem"), "--kind", "ed25519"])
    assert f"{tmp_path}/new.pem.pub" in capsys.readouterr().out and read_private_key(tmp_path / "new.pem")
    with pytest.raises(ConfigError, match="--kind is 'rsa'; choose p256 or ed25519"):
        COMMANDS["attest"]("lockstep attest", ["--make-key", str(tmp_path / "more.pem"), "--kind", "rsa"])
    (tmp_path / "toy.yaml").write_text(run.config.model_dump_json(exclude_unset=True))
    with pytest.raises(ConfigError, match="--output ''; name the file of a private key, and one to write"):
        COMMANDS["attest"]("lockstep attest", [str(tmp_path / "toy.yaml"), "--key", str(run.private)])


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [({"parent": "0a1b2c3d4e5f"}, "is an increment of 0a1b2c3d4e5f"), ({"erasures": ["9f"]}, "has lost rows by an erasure")],
    ids=["increment", "erasure"],
)
def test_what_one_etl_does_not_repeat_is_compared_where_it_is(run: SignedRun, annotation: Values, reason: str) -> None:
    def change(values: Values) -> None:
        dependency(values, "dataset")["annotations"].update(annotation)

    run.write(seal_sections(run.alter(change)))
    with pytest.raises(DatasetError, match=rf"{reason}, .*, or compare digests by --digests-only"):
        verify_digests(run, digests_only=False, from_sources=True)
    assert verify_digests(run).is_right


def test_nothing_is_trained_once_a_part_differs(run: SignedRun) -> None:
    run.write(seal_sections(run.alter(forge_code)))
    verification = verify_digests(run, digests_only=False)
    assert verification.differences == ["code"] and not verification.trained
    assert [check.name for check in verification.checks if check.outcome == "right" and check.name == "rows"] == []


def test_the_commit_is_kept_beside_the_digest_of_the_files(run: SignedRun) -> None:
    payload = read_envelope(run.statement).payload
    statement = parse_statement(payload, "S.json")
    assert set(statement.dependencies["code"]["digest"]) == {"sha256"}, "fabricated without git"
    assert b64decode(json.loads(run.statement.read_bytes())["payload"]) == payload


def test_what_is_missing_or_damaged_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCKSTEP_HOME", str(tmp_path))
    run = sign_run(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ConfigError, match="which holds no files; name the folder of the downloaded model"):
        verify_digests(run, model=tmp_path / "empty")
    with pytest.raises(ConfigError, match="name a file in a folder that can be written"):
        write_envelope(read_envelope(run.statement), tmp_path / "S.json" / "below")

    def lose_log(values: Values) -> None:
        values["predicate"]["runDetails"]["byproducts"].pop()

    run.write(seal_sections(run.alter(lose_log)))
    with pytest.raises(ConfigError, match="has no digest log; have it made anew, or compare digests by --digests-only"):
        verify_digests(run, digests_only=False)
    assert verify_digests(run).is_right, "the remedy"
    version = open_dataset(run.config)
    part = Path(version.root, version.row_groups[0].file)
    content = part.read_bytes()
    part.unlink()
    with pytest.raises(CorruptError, match=r"cannot be read: .*; restore the file"):
        verify_digests(run)
    part.write_bytes(content)
    assert verify_digests(run).is_right, "the remedy"
    (tmp_path / "requirements.txt").write_text(f"numpy=={np.__version__}\ntorch==0.1\n")
    with pytest.raises(
        MismatchError, match=r"with torch 0.1, and \d.* is installed here; make the statement in the environment that trained"
    ):
        check_packages(tmp_path, "1f")
    (tmp_path / "requirements.txt").write_text(f"numpy=={np.__version__}\n")
    check_packages(tmp_path, "1f")
