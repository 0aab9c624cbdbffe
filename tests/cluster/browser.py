"""MLflow's pages as a person sees them, in a headless Chromium."""

import base64
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

from chromium import open_in_browser
from mlflow.entities import Run

PICTURE = Path(__file__).parents[2] / "build/run.png"
_WINDOW = "--window-size=1400,1000"


@contextmanager
def logged_in(environment: Mapping[str, str]) -> Iterator[str]:
    """An address on loopback that shows MLflow's server to whoever asks, with the login that its page would ask for."""
    login = f"{environment['MLFLOW_TRACKING_USERNAME']}:{environment['MLFLOW_TRACKING_PASSWORD']}"
    server = ThreadingHTTPServer(("127.0.0.1", 0), _passing(environment["MLFLOW_TRACKING_URI"], base64.b64encode(login.encode()).decode()))
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def assert_browsed(run: Run, environment: Mapping[str, str]) -> None:
    """MLflow's page of a digits' run shows its metrics, lineage and end; its picture stays in `PICTURE`.

    Skips the test where there is no Chromium.
    """
    PICTURE.parent.mkdir(exist_ok=True)
    with logged_in(environment) as address:
        page = browse(f"{address}/#/experiments/{run.info.experiment_id}/runs/{run.info.run_id}", PICTURE)
    for text in ("test/accuracy", "dataset.digest", run.data.tags["dataset.digest"], "ray.submission_id", "Finished"):
        assert text in page, f"{text}: see {PICTURE}"
    assert PICTURE.stat().st_size > 20_000


def browse(address: str, screenshot: Path) -> str:
    """The page's elements after its scripts have run, and a picture of it in `screenshot`. Skips the test where there is no Chromium."""
    page = open_in_browser(address, _WINDOW, "--dump-dom", seconds=30).stdout
    open_in_browser(address, _WINDOW, f"--screenshot={screenshot}", seconds=30)
    return page


def _passing(address: str, login: str) -> type[BaseHTTPRequestHandler]:
    class Passing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0))) or None
            headers = {name: value for name, value in self.headers.items() if name.lower() in ("accept", "content-type")}
            request = urllib.request.Request(address + self.path, body, {**headers, "Authorization": f"Basic {login}"}, method=self.command)
            try:
                answer = urllib.request.urlopen(request, timeout=60)
            except urllib.error.HTTPError as error:
                answer = error
            with answer:
                content = answer.read()
            self.send_response(answer.status)
            for name in ("Content-Type", "Cache-Control"):
                if value := answer.headers.get(name):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            self.do_GET()

        def log_message(self, *_: object) -> None:
            """Nothing."""

    return Passing
