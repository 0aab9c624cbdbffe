"""The documents' shell blocks, and a folder as a reader has it who types them."""

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import NamedTuple

import pytest
from raw import FOLDER
from sessions import process

ROOT = Path(__file__).parents[1]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "THREATS.md", *ROOT.glob("docs/**/*.md")])
SYSTEM = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
NOT_TYPED = {"make test": "it would run the test that types it"}
"""Commands that stay out, and why."""
IN_CLUSTER_TESTS = {
    "docs/how-to/cluster.md: Servers of one machine": "tests/cluster/test_documents.py",
    "docs/how-to/cluster.md: Jobs": "tests/cluster/test_documents.py",
    "docs/how-to/cluster.md: What machines have to have in common": "tests/cluster/test_packed.py",
    "docs/how-to/cluster.md: Slurm": "tests/cluster/test_slurm.py",
    "docs/explanation/exact.md: To verify a run": "tests/cluster/test_documents.py",
}
"""Places of blocks that need servers, or minutes, and the tests that type them; tests/integration types all others."""


class Block(NamedTuple):
    place: str
    """`docs/how-to/cluster.md: Slurm`: the file and the heading above."""
    text: str

    @property
    def needs_raw_data(self) -> bool:
        confs = re.findall(r"conf/\w+\.yaml", self.text)
        return "data/raw/" in self.text or any("LOCKSTEP_RAW" in (ROOT / conf).read_text() for conf in confs)


def shell_blocks() -> list[Block]:
    """All of them, in the documents' order, the README's first."""
    return [block for file in DOCUMENTS for block in _blocks_in(file.read_text(), str(file.relative_to(ROOT)))]


def below(place: str) -> list[Block]:
    """The blocks of a place."""
    blocks = [block for block in shell_blocks() if block.place == place]
    assert blocks, f"no shell block at {place}"
    return blocks


def demo_block() -> Block:
    """README's block of `make demo`, which tests/integration/test_demo.py types."""
    (block,) = [block for block in shell_blocks() if "make demo" in block.text]
    return block


def _blocks_in(text: str, document: str) -> Iterator[Block]:
    heading = ""
    for line, language, block in re.findall(r"^#+ ([^\n]+)$|^```(\w*)\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        heading = line or heading
        if language == "sh":
            yield Block(f"{document}: {heading}", block)


@contextmanager
def reader_folder(folder: Path) -> Iterator[Path]:
    """A copy of the checkout in `folder`, with raw data where the configs look for them, and an environment that is installed."""
    if not (Path(sys.prefix) / "installed").exists():
        pytest.skip(f"make has not installed {sys.prefix}, and would install the copy into it")
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout: which files are the project's is unknown")
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    # Or make would install the copy, instead of the checkout, into the same environment.
    for name in ("setup.cfg", "constraints.txt", "requirements.lock"):
        os.utime(folder / name, (0, 0))
    (folder / ".venv").symlink_to(sys.prefix)
    (folder / "data").mkdir()
    (folder / "data/raw").symlink_to(FOLDER)
    (folder / "home").mkdir()
    for document in DOCUMENTS:
        write_files(document.read_text(), folder)
    yield folder


def write_files(text: str, folder: Path) -> None:
    """A document's Python and YAML blocks that say in their first line which file they are, `# churn/task.py`."""
    for block, name in re.findall(r"^```(?:python|yaml)\n(# (\S+\.(?:py|yaml))\n.*?)^```", text, re.MULTILINE | re.DOTALL):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(block)


def type_block(block: Block, folder: Path, placeholders: Mapping[str, str] = {}, variables: Mapping[str, str] = {}) -> str:
    """Run the block in a fresh shell, with the system's commands, a JVM that starts soonest, and `variables`. Returns what it prints.

    A reader puts something in the place of `placeholders`. The test fails where a command fails, and is skipped without raw data.
    """
    if block.needs_raw_data and not FOLDER.exists():
        pytest.skip(f"{FOLDER} is not there; LOCKSTEP_RAW names the folder of the real data")
    text = "".join(line for line in block.text.splitlines(keepends=True) if line.partition("#")[0].strip() not in NOT_TYPED)
    for name, value in placeholders.items():
        text = re.sub(rf"\b{name}\b", value, text)
    environment = {"HOME": f"{folder}/home", "PATH": SYSTEM, "SPARK_SUBMIT_OPTS": os.environ["SPARK_SUBMIT_OPTS"], **variables}
    shell = ["env", "-i", f"--chdir={folder}", *(f"{name}={value}" for name, value in environment.items()), "bash", "-e", "-c", text]
    with NamedTemporaryFile("w+") as output:
        with process(shell, output.file, stop=signal.SIGTERM) as running:
            code = running.wait()
        printed = Path(output.name).read_text(errors="replace")
    assert code == 0 and "Traceback" not in printed, f"{block.place} ended with {code}:\n{text}\n{printed[-6000:]}"
    return printed
