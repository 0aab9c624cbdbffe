"""Writes the sources of the site into build/pages: README.md as its first page, docs, and a page for each file that they link to.

So a link within the repository is a relative one, as its hosts show it, and the site needs no host. A link to what is not there stays
as it is, and fails the strict build.

python docs/site/assemble.py
"""

import posixpath
import re
import shutil
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ROOT / "build/pages"
FIRST = ("README.md", "THREATS.md", "CHANGELOG.md", "CONTRIBUTING.md")
LANGUAGES = {".py": "python", ".yaml": "yaml", ".yml": "yaml", ".sh": "bash", ".sbatch": "bash", ".json": "json"}
_LINK = re.compile(r"(\]\()([^)#\s:]+)(?=[)#])")
_FENCED = re.compile(r"^(```.*?^```)", re.MULTILINE | re.DOTALL)


def main() -> None:
    shutil.rmtree(PAGES, ignore_errors=True)
    documents = [*FIRST, *(str(file.relative_to(ROOT)) for file in ROOT.glob("docs/**/*.md"))]
    shown = set(documents)
    for path in documents:
        text = (ROOT / path).read_text(encoding="utf-8")
        _write(page_of(path), ("---\nhide: [navigation]\n---\n\n" if path == "README.md" else "") + within_site(text, path))
        shown |= {target for target in targets(text, path) if not target.startswith("docs/")}
    for path in sorted(shown.difference(documents)):
        if (ROOT / path).exists():
            _write(page_of(path), source_page(path))
    for file in [*ROOT.glob("docs/**/*.svg"), *ROOT.glob("docs/**/*.png"), *ROOT.glob("docs/site/*.css"), *ROOT.glob("docs/*.ipynb")]:
        copy = PAGES / file.relative_to(ROOT / "docs")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, copy)


def page_of(path: str) -> str:
    """Where in the site a file of the repository is shown."""
    if path == "README.md":
        return "index.md"
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"source/{path}" if path.endswith(".md") else f"source/{path}.md"


def targets(markdown: str, path: str) -> set[str]:
    """Paths in the repository to which a document links."""
    return {posixpath.normpath(posixpath.join(posixpath.dirname(path), link[2])) for link in _LINK.finditer(_FENCED.sub("", markdown))}


def within_site(markdown: str, path: str) -> str:
    """The document with links from page to page, instead of from file to file."""
    here = posixpath.dirname(page_of(path)) or "."

    def rewritten(link: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(path), link[2]))
        return link[1] + posixpath.relpath(page_of(target), here) if (ROOT / target).exists() else link[0]

    return "".join(part if part.startswith("```") else _LINK.sub(rewritten, part) for part in _FENCED.split(markdown))


def source_page(path: str) -> str:
    """A file as it is, or the names in a folder; the search leaves both out."""
    file = ROOT / path
    heading = f"---\nsearch: {{exclude: true}}\nhide: [navigation, toc]\n---\n\n# {path}\n\n"
    if file.is_dir():
        names = sorted(
            f"{one.name}/" if one.is_dir() else one.name for one in file.iterdir() if not one.name.startswith(("__pycache__", "."))
        )
        return heading + "\n".join(f"- `{name}`" for name in names) + "\n"
    return f"{heading}````{LANGUAGES.get(file.suffix, 'text')}\n{file.read_text(encoding='utf-8').rstrip()}\n````\n"


def _write(page: str, text: str) -> None:
    (PAGES / page).parent.mkdir(parents=True, exist_ok=True)
    (PAGES / page).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
