"""A page as people see it, in a headless Chromium: what it asks for, what it complains about, and whether it fits."""

import json
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import partial
from html import unescape
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or ""
QUIET = ["--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"]
# The frame is as wide as asked, whereas a headless window has a least width of 500 pixels.
_FRAME = """<body style="margin:0"><iframe id="page" src="page.html" style="width:{width}px;height:2000px;border:0"></iframe><script>
onload = () => {{
  const inner = document.getElementById("page").contentWindow;
  const found = inner.performance.getEntriesByType("resource").map(entry => entry.name).filter(name => !name.startsWith("data:"));
  const root = inner.document.documentElement;
  document.title = JSON.stringify({{asked: found, wide: root.scrollWidth, height: root.scrollHeight}});
}}</script>"""


@dataclass(frozen=True)
class Look:
    asked: list[str]
    """Addresses that the page loaded, besides itself."""
    wide: int
    """Pixels that its content needs."""
    height: int
    complaints: list[str]
    """The console's errors and warnings."""


def look(page: str, width: int, folder: Path) -> Look:
    """Show a page of HTML in so many pixels, with a picture of it in `folder`. Skips the test where there is no Chromium."""
    if not BROWSER:
        pytest.skip("no Chromium is here; Debian, Ubuntu: sudo apt-get install chromium")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "page.html").write_text(page)
    (folder / "frame.html").write_text(_FRAME.format(width=width))
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=str(folder)))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        window = ["--window-size=" + f"{max(width, 500)},2000", "--hide-scrollbars", f"--screenshot={folder / f'{width}.png'}"]
        command = [
            BROWSER,
            "--headless",
            "--no-sandbox",
            *QUIET,
            f"--user-data-dir={folder / 'profile'}",
            "--enable-logging=stderr",
            *window,
        ]
        address = f"http://127.0.0.1:{server.server_port}/frame.html"
        done = subprocess.run([*command, "--dump-dom", address], capture_output=True, text=True, timeout=120, check=True)
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    (told,) = re.findall(r"<title>(.*?)</title>", done.stdout)
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return Look(**json.loads(unescape(told)), complaints=complaints)


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing."""
