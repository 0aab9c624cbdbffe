"""Slices: the core names none, works without them, and finds those of other packages."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from shape import imported_names
from test_strategy_folders import constants

from pipelines.config.features import ENCODERS
from pipelines.config.kinds import Kinds
from pipelines.config.serving import EXPORTS, Export, export_targets
from pipelines.config.slices import ROOMS, inner_packages, slice_modules
from pipelines.config.source.source import TABLES
from pipelines.config.tasks.task import TASKS
from pipelines.config.train.strategy import STRATEGIES
from pipelines.data.features import restore_encoder
from pipelines.data.versions.manifest import FittedEncoder
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import MismatchError

ROOT = Path(__file__).parents[2]
KINDS: tuple[Kinds, ...] = (ENCODERS, TASKS, TABLES, STRATEGIES)
TARGETS = {f"{EXPORTS}.{name}": name for name in inner_packages(EXPORTS)}
"""The names of export targets, by package."""
SLICES = sorted({package for package in slice_modules("settings") if package.startswith(ROOMS)} | TARGETS.keys())
COMMON_WORDS = {
    "boosting",
    "boxes",
    "bytes",
    "characters",
    "delta",
    "duckdb",
    "iceberg",
    "language",
    "mask",
    "numpy",
    "spark",
    "operator",
    "series",
    "trees",
    "volume",
    "words",
}
"""Names of kinds that are also words of SQL, of other libraries and of the core: bytes of a file, words of a text, a model of Spark ML."""
REST = """
import sys
import pipelines.api, pipelines.commands, pipelines.launch.training_run, pipelines.report.run_page, pipelines.init.drafting
from pathlib import Path
from pipelines.config import load, reference
from pipelines.config.features import ENCODERS
from pipelines.config.serving import export_targets
from pipelines.config.source.source import TABLES
from pipelines.config.tasks.task import TASKS
from pipelines.config.train.strategy import STRATEGIES
from pipelines.errors import ConfigError
from pipelines.init.draft import Request
from pipelines.init.drafting import draft_config
from pipelines.report.figures.svg_figures import kind_figures
print(pipelines.api.__file__)
print(*(name for kinds in (ENCODERS, TASKS, TABLES, STRATEGIES) for name in kinds.by_name), *export_targets())
print(len(reference.reference_page()) > 10_000, len(kind_figures("classes")))
for name in ("adult", "digits", "trec"):
    load(f"conf/{name}.yaml")
Path("t.csv").write_text("a,b,y\\n" + "".join(f"{row % 7},{row * 3 % 11},{row % 2}\\n" for row in range(200)))
print(draft_config(Request("t.csv", "y", "toy")).sections["task"]["kind"])
"""


def slice_names(package: str) -> list[str]:
    """The names of all kinds that a slice has, or that of the target."""
    names = [name for kinds in KINDS for name, settings in kinds.by_name.items() if settings.__module__.startswith(f"{package}.")]
    return names + [name for target, name in TARGETS.items() if target == package]


def test_no_module_outside_a_slice_names_it() -> None:
    names = {name: package for package in SLICES for name in slice_names(package) if name not in COMMON_WORDS}
    mentions = []
    for file in sorted(ROOT.glob("pipelines/**/*.py")):
        module = ".".join(file.relative_to(ROOT).with_suffix("").parts)
        words = constants(file)
        mentions += [(module, name) for name, package in names.items() if name in words and not module.startswith(f"{package}.")]
        slice_of_module = next((package for package in SLICES if module.startswith(f"{package}.")), "nowhere")
        imports = [name for name in imported_names(file) if name.startswith(tuple(f"{package}." for package in SLICES))]
        mentions += [(module, name) for name in imports if not name.startswith(f"{slice_of_module}.")]
    assert mentions == []


def without(folder: Path, *packages: str) -> Path:
    """A copy of the source tree in which slices are missing."""
    for name in ("pipelines", "conf"):
        shutil.copytree(ROOT / name, folder / name)
    for package in packages:
        shutil.rmtree(folder / package.replace(".", "/"))
    return folder


def answers(folder: Path, code: str = REST, *places: Path) -> list[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, [folder, *places]))}
    process = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, timeout=250, check=False
    )
    assert process.returncode == 0, process.stderr
    return process.stdout.splitlines()


def test_the_core_works_without_any_slice(tmp_path: Path) -> None:
    place, names, page_and_figures, task = answers(without(tmp_path, *SLICES))
    assert place.startswith(str(tmp_path))
    assert names.split() == [*(name for kinds in KINDS for name in kinds.core_classes), "onnx", "onnx-int8"]
    assert page_and_figures == "True 4" and task == "tabular"


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.parametrize("package", SLICES)
def test_everything_else_works_without_a_slice(tmp_path: Path, package: str) -> None:
    _, names, page_and_figures, _ = answers(without(tmp_path, package))
    every_name = {name for kinds in KINDS for name in kinds.by_name} | export_targets().keys()
    assert {*names.split()} == every_name - set(slice_names(package))
    assert page_and_figures == "True 4"


def register(site: Path, name: str, entry_points: str) -> None:
    """Make an installed distribution of the files in `site`."""
    folder = site / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(entry_points)


ENCODER = """
from typing import ClassVar, Literal
from pipelines.config import EncoderSettings
class Rank(EncoderSettings):
    implementation: ClassVar[str] = "ranks.encoder:Rank"
    encoder: Literal["rank"] = "rank"
"""
LOOK = """
from pipelines.config.features import ENCODERS
from pipelines.config.tasks.task import TASKS
for name in ("rank", "standardise"):
    try:
        print(ENCODERS.class_for(name).__module__)
    except ValueError as error:
        print(error)
print("trees" in TASKS.by_name)
"""


def test_other_packages_register_theirs(tmp_path: Path) -> None:
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks/__init__.py").write_text("")
    (tmp_path / "ranks/settings.py").write_text(ENCODER)
    register(tmp_path, "ranks", "[lockstep.applications]\nranks = ranks\n")
    assert answers(ROOT, LOOK, tmp_path)[0] == "ranks.settings"


def test_other_packages_register_targets_of_exports_which_messages_list_without_torch(tmp_path: Path) -> None:
    register(tmp_path, "tapes", "[lockstep.exports]\ntape = tapes.paper:write\n")
    code = "import sys\nfrom pipelines.commands import export\nfrom pipelines.errors import ConfigError\n"
    code += "try:\n    export('export', ['conf/adult.yaml', '--run', 'x', '--to', 'y'])\nexcept ConfigError as error:\n    print(error)\n"
    message, has_torch = answers(ROOT, f"{code}print('torch' in sys.modules)", tmp_path)
    assert message.endswith(f"one of {', '.join([*export_targets(), 'tape'])}") and has_torch == "False"


def test_a_target_of_another_package_that_is_broken_or_given_twice_is_said(tmp_path: Path) -> None:
    (tmp_path / "tapes.py").write_text("def write(): ...")
    register(tmp_path, "tapes", "[lockstep.exports]\ntape = tapes:print\nonnx = tapes:write\ncard = tapes:write\n")
    register(tmp_path, "cards", "[lockstep.exports]\ncard = cards:write\n")
    code = "from pipelines.errors import LockstepError\nfrom pipelines.serving.export.targets import target_writer\n"
    code += "for name in ('tape', 'card', 'onnx'):\n    try:\n        print(target_writer(name).__module__)\n"
    code += "    except LockstepError as error:\n        print(error)\n"
    broken, twice, core = answers(ROOT, code, tmp_path)
    assert "--to tape is tapes:print, which cannot be imported" in broken and "mend it, or uninstall its package" in broken
    assert "target card is given by" in twice and "tapes:write" in twice and "cards:write" in twice and "uninstall one" in twice
    assert core == "pipelines.serving.export.onnx", "a package takes no name of the core's"
    (tmp_path / "tapes.py").write_text("def print(): ...")  # mended
    assert answers(ROOT, code, tmp_path)[0] == "tapes"


def test_a_recorded_config_may_have_settings_of_a_target_that_is_gone() -> None:
    values = {"path": "folder", "gone": {"rows": 1}}
    assert Export.model_validate(values, context={"recorded": True}).path == "folder"
    with pytest.raises(ValueError, match="gone"):
        Export.model_validate(values)


def test_a_package_that_cannot_be_imported_is_named_and_all_else_works(tmp_path: Path) -> None:
    register(tmp_path, "broken", "[lockstep.applications]\nbroken = no_such_package\n[lockstep.encoders]\nrank = nowhere:Rank\n")
    missing, misspelt, has_trees = answers(ROOT, LOOK, tmp_path)
    assert (
        "no encoder 'rank'" in missing and "No module named 'no_such_package'" in missing and "'nowhere:Rank' cannot be imported" in missing
    )
    assert "did you mean standardize?" in misspelt and has_trees == "True"


def test_a_name_that_two_packages_give_is_refused_with_both(tmp_path: Path) -> None:
    for name in ("ranks", "grades"):
        (tmp_path / f"{name}.py").write_text(ENCODER)
        register(tmp_path, name, f"[lockstep.encoders]\nrank = {name}:Rank\n")
    line, _, _ = answers(ROOT, LOOK, tmp_path)
    assert "encoder rank is given by" in line and "ranks" in line and "grades" in line and "uninstall one" in line


def test_a_part_of_an_application_that_cannot_be_imported_is_said(tmp_path: Path) -> None:
    """As one whose library lacks a file: its drafts would be missing without a word."""
    (without(tmp_path) / "pipelines/applications/detection/draft.py").write_text("import no_such_library")
    code = "import logging\nlogging.basicConfig(stream=__import__('sys').stdout)\n"
    code += "from pipelines.init.drafting import drafters\nprint(len(drafters()) > 5)"
    warning, is_drafting = answers(tmp_path, code)
    assert "pipelines.applications.detection.draft cannot be imported" in warning and "no_such_library" in warning
    assert is_drafting == "True"


def test_an_encoder_whose_package_is_gone_is_named_with_it(tmp_path: Path) -> None:
    """With the package installed, which is the other remedy, the encoder is found."""
    (tmp_path / "ranks").mkdir()
    (tmp_path / "ranks/__init__.py").write_text("")
    (tmp_path / "ranks/settings.py").write_text(ENCODER)
    register(tmp_path, "ranks", "[lockstep.applications]\nranks = ranks\n")
    code = """
from pipelines.config.features import ENCODERS
settings = ENCODERS.class_for("rank")(encoder="rank")
print(ENCODERS.package(settings), ENCODERS.package(ENCODERS.class_for("standardize")()) == "")
"""
    assert answers(ROOT, code, tmp_path) == ["ranks True"]
    column = TensorColumn("place", "float32")
    fitted = FittedEncoder(feature={"encoder": "rank"}, inputs=("place",), state={}, column=column, package="ranks")
    with pytest.raises(
        MismatchError, match=r"^encoder rank is of ranks, which is not installed here; install that package, or read the rows"
    ):
        restore_encoder(fitted)
