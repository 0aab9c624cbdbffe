"""The glossary names what there is in the code."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROWS = re.findall(r"^\| ([a-z ]+) \| (.+) \| `([\w.]+):?(\w*)` \|$", (ROOT / "docs/explanation/glossary.md").read_text(), re.MULTILINE)


def test_words_stand_once_in_their_order() -> None:
    words = [word for word, *_ in ROWS]
    assert len(words) >= 40 and words == sorted(set(words))


@pytest.mark.parametrize(("word", "module", "name"), [(word, module, name) for word, _, module, name in ROWS])
def test_a_word_is_defined_where_the_glossary_says(word: str, module: str, name: str) -> None:
    file = ROOT / f"{module.replace('.', '/')}.py"
    assert file.exists(), f"{word}: no module {module}"
    assert not name or re.search(rf"^(class|def) {name}\b|^{name}\b.* = ", file.read_text(), re.MULTILINE), f"{word}: no {name} in {module}"
