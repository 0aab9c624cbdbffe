"""Serves the text files that ETLs leave for Prometheus, on loopback: python cluster/local/textfiles.py FOLDER PORT

Prometheus's node_exporter does the same, where it is installed: --collector.textfile.directory=FOLDER.
"""

import sys
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from loopback import LOOPBACK

_FORMAT = "text/plain; version=0.0.4; charset=utf-8"


def joined(folder: Path) -> str:
    """All *.prom files of a folder as one text: what is said of a metric comes once, since Prometheus refuses a repetition."""
    said: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for file in sorted(folder.glob("*.prom")):
        for line in file.read_text(errors="replace").splitlines():
            name = line.split()[2] if line.startswith("# ") and len(line.split()) > 2 else line.partition("{")[0].partition(" ")[0]
            if not line.startswith("#"):
                samples.setdefault(name, []).append(line)
            elif line not in said.setdefault(name, []):
                said[name].append(line)
    return "".join(f"{line}\n" for name in samples for line in [*said.get(name, []), *samples[name]])


class _Metrics(BaseHTTPRequestHandler):
    def __init__(self, folder: Path, *arguments: Any) -> None:
        self._folder = folder
        super().__init__(*arguments)

    def do_GET(self) -> None:
        content = joined(self._folder).encode()
        self.send_response(200)
        self.send_header("Content-Type", _FORMAT)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Nothing."""


if __name__ == "__main__":
    ThreadingHTTPServer((LOOPBACK, int(sys.argv[2])), partial(_Metrics, Path(sys.argv[1]))).serve_forever()
