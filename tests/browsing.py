"""A page as a headless Chromium shows it: its errors, and what is wider than the window."""

import json
import re
import subprocess
import tempfile
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pytest
from chromium import BROWSER, QUIET

_FRAMES = """<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><body><pre id="found">nothing</pre><script>
const found = [];
const widths = %s;
let left = widths.length;
for (const width of widths) {
  const frame = document.createElement("iframe");
  frame.style = `width: ${width}px; height: 900px; border: 0`;
  frame.onload = () => {
    const root = frame.contentDocument.documentElement;
    const images = [...frame.contentDocument.images];
    found.push({width, text: root.innerText.length, content: root.scrollWidth, window: root.clientWidth,
      broken: images.filter(image => image.complete && !image.naturalWidth).length});
    if (!--left) document.getElementById("found").textContent = JSON.stringify(found);
  };
  frame.src = %s;
  document.body.append(frame);
}
</script>"""


@dataclass(frozen=True)
class Seen:
    errors: list[str]
    """Of the console: requests that the page's policy forbids are among them."""
    overflow: dict[int, int]
    """Pixels of the content beyond the window, by the window's width."""
    broken: int
    """Images that cannot be decoded."""


def seen(page: Path, widths: tuple[int, ...] = (400, 1600)) -> Seen:
    """Open the page in windows of these widths. Skips the test where there is no Chromium."""
    if not BROWSER:
        pytest.skip("no Chromium is here; Debian, Ubuntu: sudo apt-get install chromium")
    with tempfile.TemporaryDirectory() as folder:
        frames = Path(folder) / "frames.html"
        frames.write_text(_FRAMES % (json.dumps(widths), json.dumps(page.absolute().as_uri())))
        own = [
            "--allow-file-access-from-files",
            "--enable-logging=stderr",
            "--virtual-time-budget=20000",
        ]
        command = [BROWSER, "--headless", "--no-sandbox", f"--user-data-dir={folder}/profile", *QUIET, *own, "--dump-dom", frames.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    shown = re.search(r'<pre id="found">(\[.*?\])</pre>', done.stdout)
    assert shown, f"the page did not load: {done.stderr[-2_000:]}"
    windows = json.loads(unescape(shown[1]))
    assert all(one["text"] > 0 for one in windows)
    errors = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Seen(errors, {one["width"]: one["content"] - one["window"] for one in windows}, sum(one["broken"] for one in windows))
