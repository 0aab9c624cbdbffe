"""What others read: signatures of OpenSSF's tools, bills of CycloneDX, descriptions of Croissant, cards for people."""

import json
from hashlib import sha256
from pathlib import Path

import mlcroissant
import numpy as np
import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from model_signing.verifying import Config as VerifierConfig
from statements import SignedRun, sign_run
from trainings import open_dataset
from versions import write_version

from pipelines.errors import ConfigError, CorruptError
from pipelines.lifecycle.statements.bill_of_materials import bill_of_materials
from pipelines.lifecycle.statements.croissant import croissant, write_croissant
from pipelines.lifecycle.statements.envelope import read_envelope
from pipelines.lifecycle.statements.keys import create_keys, read_private_key
from pipelines.lifecycle.statements.model_card import model_card
from pipelines.lifecycle.statements.model_signature import sign_model_files
from pipelines.lifecycle.statements.provenance import Statement, parse_statement


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> SignedRun:
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCKSTEP_HOME", str(folder))
        return sign_run(folder)


@pytest.fixture(scope="module")
def statement(run: SignedRun) -> Statement:
    return parse_statement(read_envelope(run.statement).payload, "S.json")


def test_openssf_s_own_tool_verifies_the_signature_of_a_model(tmp_path: Path) -> None:
    names = ["MLmodel", "code/pipelines.zip", "code-of-mine/a.py", "artifacts/weights.safetensors", "data.json"]
    for name in names:
        (tmp_path / "model" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "model" / name).write_text(name)
    public = create_keys(tmp_path / "key.pem")
    files = {name: sha256(name.encode()).hexdigest() for name in names}
    (tmp_path / "model.sig").write_bytes(sign_model_files("churn", files, read_private_key(tmp_path / "key.pem")))
    verifier = VerifierConfig().use_elliptic_key_verifier(public_key=public)
    verifier.verify(tmp_path / "model", tmp_path / "model.sig")
    (tmp_path / "model/data.json").write_text("altered")
    with pytest.raises(ValueError, match=r"Hash mismatch for 'data.json'"):
        verifier.verify(tmp_path / "model", tmp_path / "model.sig")
    create_keys(tmp_path / "other.pem", "ed25519")
    with pytest.raises(ConfigError, match=r"model.sig needs a key of ECDSA, .*; make one by lockstep attest --make-key FILE"):
        sign_model_files("churn", files, read_private_key(tmp_path / "other.pem"))


def test_the_bill_of_materials_is_valid_and_names_model_data_code_and_packages(statement: Statement) -> None:
    bill = bill_of_materials(statement)
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None
    model = bill["metadata"]["component"]
    assert model["type"] == "machine-learning-model" and model["hashes"][0]["content"] == statement.subjects["weights"]
    performance = model["modelCard"]["quantitativeAnalysis"]["performanceMetrics"]
    assert performance[0] == {"type": "auc", "value": "0.9", "slice": "test"}
    kinds = {component["name"]: component["type"] for component in bill["components"]}
    assert kinds["toy"] == "data" and kinds["torch"] == "library" and kinds["lockstep"] == "application"
    assert bill == bill_of_materials(statement)


def test_mlcroissant_loads_every_row_of_a_version_and_numpy_its_tensors(tmp_path: Path) -> None:
    draw = np.random.default_rng(0)

    def part(rows: int) -> dict[str, np.ndarray]:
        return {"x": draw.normal(size=rows).astype("f4"), "image": draw.normal(size=(rows, 2, 3)).astype("f4"), "label": np.arange(rows)}

    parts = [part(40), part(3)]
    version = write_version(tmp_path / "data", {"train": parts, "test": [part(4)]})
    dataset = mlcroissant.Dataset(write_croissant(version))
    records = list(dataset.records("train"))
    by_label = sorted(records, key=lambda record: (record["train/label"], record["train/x"]))
    expected = sorted(zip(np.concatenate([p["label"] for p in parts]), np.concatenate([p["x"] for p in parts]), strict=True))
    assert [(record["train/label"], np.float32(record["train/x"])) for record in by_label] == expected
    images = {np.frombuffer(record["train/image"], "<f4").reshape(2, 3).tobytes() for record in records}
    assert images == {image.tobytes() for p in parts for image in p["image"]}
    assert len(list(dataset.records("test"))) == 4
    (field,) = [field for field in croissant(version)["recordSet"][0]["field"] if field["name"] == "image"]
    assert field["description"] == "feature, float32, shape [2, 3]: bytes, little-endian, in C order"
    files = [entry for entry in croissant(version)["distribution"] if entry["@type"] == "cr:FileObject"]
    assert [sha256((tmp_path / "data" / file["contentUrl"]).read_bytes()).hexdigest() for file in files] == [
        file["sha256"] for file in files
    ]
    (tmp_path / "data" / files[0]["contentUrl"]).unlink()
    with pytest.raises(CorruptError, match=r"is gone; restore the file, or remove the version's folder and run jobs/etl.py again"):
        croissant(version)


def test_a_card_tells_what_is_known_and_asks_for_the_rest(run: SignedRun, statement: Statement) -> None:
    card = model_card(statement, open_dataset(run.config).manifest)
    assert "| train | 400 |" in card and "| `test/auc` | 0.9 |" in card and "## Limits" in card and card.count("*To be written.*") == 3
    odd = open_dataset(run.config).manifest.model_copy(update={"quarantined": {"a|b `c`\n# d": 3}})
    assert "- 3 rows: ``` a\\|b `c` # d ```" in model_card(statement, odd), "a reason is text, and no Markdown"
