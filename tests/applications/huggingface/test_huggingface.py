"""The encoder `tokenizer` and the task `huggingface`: what they give is what Hugging Face's libraries give."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from fitting import fit
from transformer_folders import TEXTS, write_folder, write_network, write_tokenizer

from pipelines.applications.huggingface import task as huggingface
from pipelines.applications.huggingface.settings import HuggingFaceSettings
from pipelines.applications.huggingface.task import HuggingFace
from pipelines.config import Config, parse
from pipelines.config.train.init_from import InitFrom
from pipelines.config.train.train import Train
from pipelines.data.features import Encoders, restore_encoder
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import FREE, TensorColumn, to_numpy
from pipelines.errors import ConfigError
from pipelines.launch.checks import check_before_etl
from pipelines.launch.initial_weights import read_weight_files
from pipelines.report.data_profile.column_profiles import describe_encoder
from pipelines.serving.model.logged_model import software_requirements
from pipelines.tasks.base import Data
from pipelines.train.fine_tuning import model_without_adapters
from pipelines.train.initial_model import Fit, fit_weights, meta_model, prepare_fine_tuning

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("bert")
    write_folder(folder)
    return folder


def fit_text(folder: Path, length: int = 12) -> FittedEncoder:
    raw = pa.table({"text": list(TEXTS), "y": [0, 1, 0, 1]})
    encoders = fit({"text": {"encoder": "tokenizer", "folder": str(folder), "length": length}}, {"y": "binary"}, raw)
    return encoders["text"]


def encode(encoder: FittedEncoder, *texts: str | None) -> tuple[np.ndarray, list[str | None]]:
    table, reasons = Encoders({"text": encoder}).encode(pa.table({"text": pa.array(texts, pa.string())}))
    return to_numpy(encoder.column, table["text"].combine_chunks()), reasons.to_pylist()


def config(folder: Path, train: dict[str, Any] | None = None, **task: Any) -> Config:
    values: dict[str, Any] = {
        "name": "films",
        "source": {"tables": {"films": {"format": "csv", "path": "x.csv", "schema": "text string, liked boolean"}}},
        "dataset": {
            "path": "data",
            "features": {"text": {"encoder": "tokenizer", "folder": str(folder), "length": 12}},
            "target": {"liked": "binary"},
        },
        "task": {"kind": "huggingface", "model": str(folder), **task},
        **({"train": train} if train is not None else {}),
    }
    return parse(values, "films.yaml")


def task(folder: Path, classes: int = 2, tokens: int = 30, length: int = 12, target: TensorColumn | None = None) -> HuggingFace:
    column = TensorColumn(name="text", dtype="int32", shape=(length,), cardinality=tokens + 1)
    kind = "uint8" if classes == 2 else "int64"
    target = target or TensorColumn(name="y", dtype=kind, role="target", cardinality=classes)  # type: ignore[arg-type]
    return HuggingFace(HuggingFaceSettings(model=str(folder)), Data((column, target), tuple("abcdef"[: target.cardinality or 0])))


def fit_folder(folder: Path, network: HuggingFace | None = None, **settings: Any) -> Fit:
    origin, network = InitFrom(folder=str(folder), strict=False, **settings), network or task(folder)
    return fit_weights(meta_model(network), read_weight_files(origin), origin, network.adopt_names)


def line(do: Callable[[], Any]) -> str:
    with pytest.raises(ConfigError) as refused:
        do()
    assert "\n" not in str(refused.value)
    return str(refused.value)


# The encoder.


def test_tokens_are_those_of_the_tokenizer_and_padding_is_its_own_number(tmp_path: Path) -> None:
    tokenizer = write_tokenizer(tmp_path)
    tokenizer.no_padding()
    tokenizer.enable_truncation(12)
    texts = (*TEXTS, "A GOOD unheard-of film [PAD] " * 9, "good")
    encoded, reasons = encode(fit_text(tmp_path), *texts)
    assert reasons == [None] * len(texts)
    for row, text in zip(encoded, texts, strict=True):
        numbers = tokenizer.encode(text).ids
        assert (row[: len(numbers)] - 1).tolist() == numbers and (row[len(numbers) :] == FREE).all()
    assert encoded[4, -1] == tokenizer.token_to_id("[SEP]") + 1, "a truncated text ends as others do"
    assert 1 in encoded[4], "a token of the text that is called padding is none"


def test_a_text_without_a_token_is_refused_and_an_empty_one_has_the_added_ones(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    encoded, reasons = encode(fit_text(tmp_path), "", None)
    assert reasons[0] is None and reasons[1] == "text: tokenizer cannot encode NULL"
    assert (encoded[0, :2] - 1).tolist() == [2, 3]
    write_tokenizer(tmp_path, adds_tokens=False)
    encoded, reasons = encode(fit_text(tmp_path), "good", " ")
    assert len(encoded) == 1 and reasons[1] is not None and reasons[1].endswith(": it has no token")


def test_the_manifest_is_enough_to_encode_and_names_no_folder(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    before = fit_text(tmp_path)
    expected, _ = encode(before, *TEXTS)
    shutil.rmtree(tmp_path)
    loaded = FittedEncoder.model_validate(json.loads(before.model_dump_json()))
    assert str(tmp_path) not in before.model_dump_json()
    assert np.array_equal(encode(loaded, *TEXTS)[0], expected)
    words = restore_encoder(loaded).decode(expected[0])
    assert words.tolist()[:3] == ["[CLS]", "a", "good"] and words[-1] is None


def test_another_tokenizer_makes_another_dataset_and_another_place_does_not(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    original, moved = config(folder), config(copy)
    assert original.data_identity == moved.data_identity and fit_text(folder) == fit_text(copy)
    assert original.model_identity != config(folder, {"init_from": ""}).model_identity
    write_tokenizer(copy, texts=[*TEXTS, "an entirely new sentence"])
    assert config(copy).data_identity != original.data_identity
    assert config(folder).dataset.features["text"].encodes_with == ("tokenizers",)


def test_a_tokenizer_that_changes_after_the_config_was_read_is_refused(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    (settings,) = config(tmp_path).dataset.features.values()
    write_tokenizer(tmp_path, texts=["other words"])
    raw = pa.table({"text": list(TEXTS), "y": [0, 1, 0, 1]})
    refused = line(lambda: fit({"text": settings.model_dump(mode="json")}, {"y": "binary"}, raw))
    assert f"but {tmp_path}/tokenizer.json has" in refused and "restore the file, or remove digest" in refused


def test_the_page_of_the_data_says_how_a_text_is_encoded(folder: Path) -> None:
    words = "tokenizer: the first 12 tokens of a pretrained model's tokenizer, numbered from 1; 0 is padding; int32 of shape [12]"
    assert describe_encoder("text", fit_text(folder)) == words


# The network.


@pytest.mark.parametrize("kind", ["bert", "distilbert", "roberta"])
@pytest.mark.parametrize("classes", [2, 3])
def test_probabilities_are_those_of_the_library(tmp_path: Path, kind: str, classes: int) -> None:
    network = write_folder(tmp_path, kind=kind, num_labels=classes)
    encoder = fit_text(tmp_path)
    network_task = task(tmp_path, classes, tokens=(encoder.column.cardinality or 0) - 1)
    model = network_task.model().eval()
    fit = fit_folder(tmp_path, network_task)
    assert (fit.initialised, fit.unused) == ({}, {})
    model.load_state_dict(fit.weights)
    encoded, _ = encode(encoder, *TEXTS)
    with torch.no_grad():
        probabilities = network_task.target.probabilities(model({"text": torch.from_numpy(encoded)}).double())
        for row, values in zip(encoded, probabilities, strict=True):
            numbers = torch.from_numpy(row[row != FREE] - 1).long()[None]
            expected = network(input_ids=numbers).logits.softmax(1)[0]
            torch.testing.assert_close(values.float(), expected, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("names", "places"),
    [(("b", "A"), (1, 0)), (("C", "a", "b"), (1, 2, 0)), (("x", "b", "a"), (0, 1, 2)), (("a", "a", "b"), (0, 1, 2))],
    ids=["two", "three", "other names", "names twice"],
)
def test_an_output_is_of_the_class_that_the_folder_names(tmp_path: Path, names: tuple[str, ...], places: tuple[int, ...]) -> None:
    network = write_folder(tmp_path, id2label=dict(enumerate(names)))
    network_task = task(tmp_path, len(names), tokens=(fit_text(tmp_path).column.cardinality or 0) - 1)
    model = network_task.model().eval()
    model.load_state_dict(fit_folder(tmp_path, network_task).weights)
    encoded, _ = encode(fit_text(tmp_path), TEXTS[0])
    with torch.no_grad():
        probabilities = network_task.target.probabilities(model({"text": torch.from_numpy(encoded)}).double())[0]
        expected = network(input_ids=torch.from_numpy(encoded[0][encoded[0] != FREE] - 1).long()[None]).logits.softmax(1)[0]
    torch.testing.assert_close(probabilities.float(), expected[list(places)], atol=1e-6, rtol=1e-5)


def test_a_quantity_has_one_output(folder: Path) -> None:
    number = TensorColumn(name="y", dtype="float32", role="target")
    regression = task(folder, target=number)
    regression.check()
    model = regression.model()
    loss, weight = regression.loss(model, {"text": torch.ones(3, 12, dtype=torch.int32), "y": torch.zeros(3)})
    assert loss.shape == () and weight == 3 and model.network.config.num_labels == 1


def test_a_head_is_fresh_where_the_folder_has_none_or_another(tmp_path: Path) -> None:
    write_folder(tmp_path, head="Model")
    assert "2 stay as initialised: network.classifier.weight (2, 16), network.classifier.bias (2)" in fit_folder(tmp_path).describe()
    write_folder(tmp_path, num_labels=5)
    three = fit_folder(tmp_path, task(tmp_path, 3))
    assert three.initialised == {"network.classifier.weight": [3, 16], "network.classifier.bias": [3]}
    assert fit_folder(tmp_path, rename={"classifier": "none"}).initialised == {
        "network.classifier.weight": [2, 16],
        "network.classifier.bias": [2],
    }


def test_names_of_early_checkpoints_are_known(folder: Path) -> None:
    names = ["embeddings.LayerNorm.gamma", "bert.embeddings.LayerNorm.beta", "network.classifier.bias", "cls.bias"]
    network = task(folder)
    assert network.adopt_names(meta_model(network), names) == {
        names[0]: "network.bert.embeddings.LayerNorm.weight",
        names[1]: "network.bert.embeddings.LayerNorm.bias",
        names[2]: names[2],
        names[3]: names[3],
    }


def test_two_names_that_would_become_one_stay_apart(folder: Path) -> None:
    network, origin = task(folder), InitFrom(folder=str(folder), strict=False)
    weights = read_weight_files(origin)
    twice = {**weights, "pooler.dense.bias": weights["bert.pooler.dense.bias"]}
    assert "network.bert.pooler.dense.bias" in fit_weights(meta_model(network), twice, origin, network.adopt_names).initialised


def test_training_starts_from_the_folder_unless_the_config_says_otherwise(folder: Path) -> None:
    settings = config(folder).train
    assert (settings.init_from.folder, settings.init_from.strict, settings.lr) == (str(folder), False, 2e-5)
    assert not config(folder, {"init_from": ""}).train.init_from.is_given
    assert config(folder, {"init_from": "a1b2", "lr": 0.1}).train.init_from.run == "a1b2"
    recorded = parse(config(folder).model_dump(mode="json", by_alias=True), "run", recorded=True)
    assert recorded == config(folder) and recorded.model_identity == config(folder).model_identity


def test_the_architecture_travels_with_the_settings(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    recorded = config(tmp_path).task.model_dump(mode="json")
    shutil.rmtree(tmp_path)
    settings = HuggingFaceSettings.model_validate(recorded)
    assert settings.architecture == HuggingFaceSettings(model=str(folder)).architecture
    _, requirements = software_requirements(settings)
    assert any(requirement.startswith("transformers==") for requirement in requirements)


def test_only_who_makes_a_dataset_or_trains_needs_the_folder(folder: Path, tmp_path: Path) -> None:
    away = config(tmp_path / "away")
    for needs_it in (lambda: away.data_identity, lambda: away.model_identity, lambda: check_before_etl(away)):
        assert f"{tmp_path}/away, which is no folder; name the folder of a model" in line(needs_it)
    assert config(folder).data_identity and config(folder).model_identity
    check_before_etl(config(folder))


def test_where_a_config_json_comes_from_is_not_part_of_a_run(folder: Path, tmp_path: Path) -> None:
    entries = json.loads((folder / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**entries, "transformers_version": "4.1", "dtype": "float16"}))
    same = HuggingFaceSettings(model=str(tmp_path))
    assert same.architecture == HuggingFaceSettings(model=str(folder)).architecture
    assert task(tmp_path).model().network.dtype == torch.float32
    (tmp_path / "config.json").write_text(json.dumps({**entries, "hidden_act": "relu"}))
    assert HuggingFaceSettings(model=str(tmp_path)).architecture != same.architecture


def test_low_rank_changes_are_for_its_linear_layers(folder: Path) -> None:
    network = task(folder)
    model, names = network.model(), set(network.model().state_dict())
    lora = {"rank": 2, "targets": ["*.attention.self.query", "*.attention.self.value"]}
    prepare_fine_tuning(Train.model_validate({"freeze": ["network.bert.*"], "lora": lora}), model)
    trained = [name.removeprefix("network.") for name, values in model.named_parameters() if values.requires_grad]
    assert [name for name in trained if "parametrizations" not in name] == ["classifier.weight", "classifier.bias"]
    assert len(trained) == 2 + 2 * 2 * 2, "two matrices for two layers of two blocks"
    assert model_without_adapters(model).keys() == names


def test_blocks_are_the_layers(folder: Path) -> None:
    network = task(folder)
    model = network.model()
    assert list(network.blocks(model)) == list(model.network.bert.encoder.layer)


# What is refused; tests/remedies_of_transformers.py tries the remedies.


def test_without_the_library_one_line_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface, "find_spec", lambda name: None)
    huggingface._sizes.cache_clear()
    assert "transformers, which is not installed; pip install 'lockstep-pipelines[huggingface]'" in line(lambda: task(folder))


def test_a_network_that_counts_on_padding_needs_one(tmp_path: Path) -> None:
    write_folder(tmp_path, kind="gpt2", n_embd=16, n_layer=2, n_head=2, bos_token_id=None, eos_token_id=None)
    assert "Cannot handle batch sizes > 1 if no padding token is defined" in line(task(tmp_path).check)
    write_network(tmp_path, "gpt2", vocab_size=80, n_embd=16, n_layer=2, n_head=2, pad_token_id=0, bos_token_id=None, eos_token_id=None)
    task(tmp_path).check()
