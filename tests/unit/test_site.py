"""README and docs as a site: every page is in it and in its navigation, and every link and anchor leads somewhere."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from documents import DOCUMENTS, ROOT

NAVIGATION = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]


@pytest.fixture(scope="module")
def assemble(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The script, which has written the pages into a folder of the test."""
    spec = importlib.util.spec_from_file_location("assemble", ROOT / "docs/site/assemble.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.PAGES = tmp_path_factory.mktemp("pages")
    module.main()
    return module


def test_every_link_of_a_page_leads_to_a_page_of_the_site(assemble: ModuleType) -> None:
    pages = list(assemble.PAGES.glob("**/*.md"))
    assert len(pages) > len(DOCUMENTS)
    for page in pages:
        text = re.sub(r"^(`{3,4}).*?^\1", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for target in re.findall(r"\]\(([^)#\s:]+)[)#]", text):
            assert (page.parent / target).resolve().is_file(), f"{page.relative_to(assemble.PAGES)}: {target}"


def test_a_link_to_a_file_or_a_folder_leads_to_a_page_that_shows_it(assemble: ModuleType) -> None:
    text = "[a](../../pipelines/api.py), [b](../../conf), [c](../reference/config.md#train), [d](../../gone.py), [e](#here), [f](https://a.b/c.md)"
    assert assemble.within_site(f"{text}\n```python\n[0](x)\n```\n", "docs/how-to/serving.md") == (
        "[a](../source/pipelines/api.py.md), [b](../source/conf.md), [c](../reference/config.md#train), [d](../../gone.py), "
        "[e](#here), [f](https://a.b/c.md)\n```python\n[0](x)\n```\n"
    )
    assert "def train(" in (assemble.PAGES / "source/pipelines/api.py.md").read_text()
    assert "- `digits.yaml`" in (assemble.PAGES / "source/conf.md").read_text()


def test_the_navigation_names_every_page_once_under_one_of_four_parts(assemble: ModuleType) -> None:
    named = re.findall(r": (\S+\.md)$", NAVIGATION, re.MULTILINE)
    assert sorted(named) == sorted(
        {*(assemble.page_of(str(file.relative_to(ROOT))) for file in DOCUMENTS), *map(assemble.page_of, assemble.FIRST)}
    )
    assert re.findall(r"^  - ([\w-]+):", NAVIGATION, re.MULTILINE) == ["Home", "Tutorial", "How-to", "Reference", "Explanation"]
    assert {file.parent.name for file in ROOT.glob("docs/**/*.md")} == {"tutorial", "how-to", "reference", "explanation"}


@pytest.mark.skipif(
    not importlib.util.find_spec("material"), reason="MkDocs is not installed: `make docs` installs it, and builds the site"
)
def test_the_site_builds_without_a_warning_and_loads_nothing_from_other_hosts(assemble: ModuleType, tmp_path: Path) -> None:
    settings = tmp_path / "mkdocs.yml"
    text = (ROOT / "mkdocs.yml").read_text()
    settings.write_text(
        text.replace("docs_dir: build/pages", f"docs_dir: {assemble.PAGES}").replace("site_dir: build/site", "site_dir: site")
    )
    command = [sys.executable, "-m", "mkdocs", "build", "--config-file", str(settings)]
    built = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=False
    )
    assert built.returncode == 0, built.stderr
    loaded = [
        address
        for page in tmp_path.glob("site/**/*.html")
        for address in re.findall(r"<(?:script|img|link|iframe)[^>]*?(?:src|href)=\"?(https?:[^\s\">]+)", page.read_text())
    ]
    assert loaded == []


def test_the_readme_is_short_and_its_figures_stand_in_docs() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= 120
    table = re.search(r"^## Benchmarks$(.*?)^## ", readme, re.MULTILINE | re.DOTALL)
    assert table
    figures = re.findall(r"(?<![\w.])\d[\d,.]*\d(?: ± \d[\d.]*)?", table[1])
    measured = (ROOT / "docs/explanation/benchmarks.md").read_text()
    assert len(figures) >= 10
    assert [figure for figure in figures if not re.search(rf"(?<![\d.,]){re.escape(figure)}(?![\d])", measured)] == []
