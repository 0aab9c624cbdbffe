"""Pages as people see them, in a headless Chromium: what they load, what the console says, and whether they fit."""

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import pytest

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
    const loaded = frame.contentWindow.performance.getEntriesByType("resource").map(entry => entry.name);
    const torn = [];
    const walker = frame.contentDocument.createTreeWalker(frame.contentDocument.body, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(); node; node = walker.nextNode()) {
      for (const word of node.data.matchAll(/[\\p{L}\\p{N}_]+/gu)) {
        if (word[0].length > 40) continue;
        const range = frame.contentDocument.createRange();
        range.setStart(node, word.index);
        range.setEnd(node, word.index + word[0].length);
        if (new Set([...range.getClientRects()].map(one => Math.round(one.top))).size > 1) torn.push(word[0]);
      }
    }
    found.push({width, torn, text: root.innerText.length, content: root.scrollWidth, window: root.clientWidth,
      loaded: loaded.filter(name => !name.startsWith("data:")),
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
    loaded: list[str]
    """Addresses that the page loaded, besides itself."""
    overflow: dict[int, int]
    """Pixels of the content beyond the window, by the window's width."""
    broken: int
    """Images that cannot be decoded."""
    torn: list[str]
    """Words, of up to 40 characters, that begin in one line and end in another."""


GOOD = Seen([], [], {400: 0, 1600: 0}, 0, [])
"""What is seen of a page with nothing amiss."""


def seen(page: Path, widths: tuple[int, ...] = (400, 1600)) -> Seen:
    """Open the page in windows of these widths, in pixels. Skips the test where there is no Chromium."""
    with tempfile.TemporaryDirectory() as folder:
        frames = Path(folder) / "frames.html"
        frames.write_text(_FRAMES % (json.dumps(widths), json.dumps(page.absolute().as_uri())))
        browser = open_in_browser(frames.as_uri(), "--allow-file-access-from-files", "--enable-logging=stderr", "--dump-dom", seconds=20)
    measures = re.search(r'<pre id="found">(\[.*?\])</pre>', browser.stdout)
    assert measures, f"the page did not load: {browser.stderr[-2_000:]}"
    windows = json.loads(unescape(measures[1]))
    assert all(window["text"] > 0 for window in windows)
    return Seen(
        [line for line in browser.stderr.splitlines() if "CONSOLE" in line],
        sorted({address for window in windows for address in window["loaded"]}),
        {window["width"]: window["content"] - window["window"] for window in windows},
        sum(window["broken"] for window in windows),
        sorted({word for window in windows for word in window["torn"]}),
    )


def open_in_browser(address: str, *flags: str, seconds: int) -> subprocess.CompletedProcess[str]:
    """Open an address, whose scripts have so many seconds, in a new profile. Skips the test where there is no Chromium."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if not browser:
        pytest.skip("no Chromium is here; Debian, Ubuntu: sudo apt-get install chromium")
    quiet = ["--disable-gpu", "--disable-quic", "--disable-sync", "--disable-background-networking", "--disable-component-update"]
    with tempfile.TemporaryDirectory() as profile:
        arguments = [f"--user-data-dir={profile}", f"--virtual-time-budget={1_000 * seconds}", *flags, address]
        command = [browser, "--headless", "--no-sandbox", "--no-first-run", *quiet, *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
