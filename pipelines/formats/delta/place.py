"""Where a Delta table lies: one folder, which delta-rs and Arrow name in different ways."""

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from urllib.parse import parse_qsl, unquote

from pyarrow.fs import FileInfo, FileSelector

from pipelines.data.sources.files.content import file_errors, locate

LOG = "_delta_log"
_LOCAL = re.compile("^file:(//[^/]*)?")
_S3 = re.compile("^s3[an]://")
_STORE_OPTIONS = {"region": "AWS_REGION", "anonymous": "AWS_SKIP_SIGNATURE"}
"""Options of delta-rs by those behind the question mark of an address, as `content.locate` takes it."""


@dataclass(frozen=True)
class Place:
    path: str
    """The table's folder as the config names it: a path or a URI, maybe with options of the store behind a question mark."""

    @cached_property
    def uri(self) -> str:
        """The folder without options, as delta-rs takes it."""
        folder = self.path.partition("?")[0] if self._is_remote else str(Path(_local_path(self.path)).absolute())
        return _S3.sub("s3://", folder).rstrip("/") or "/"

    @property
    def storage_options(self) -> dict[str, str]:
        """The address's options for delta-rs, which takes all others, and secrets, from the environment."""
        settings = dict(parse_qsl(self._options.removeprefix("?")))
        options = {_STORE_OPTIONS[name]: value for name, value in settings.items() if name in _STORE_OPTIONS}
        if endpoint := settings.get("endpoint_override"):
            scheme = settings.get("scheme", "https")
            options |= {"AWS_ENDPOINT_URL": f"{scheme}://{endpoint}", "AWS_ALLOW_HTTP": str(scheme == "http").lower()}
        return options

    def file(self, name: str) -> str:
        """The path or URI, for `content.open_file`, of a file that the log names: URL-encoded, and absolute in a shallow clone."""
        path = unquote(name)
        if name.startswith("file:"):
            return _local_path(name)
        if "://" in name:
            return f"{_S3.sub('s3://', path)}{self._options if name.partition('://')[0] in self.path.partition('://')[0] else ''}"
        return path if path.startswith("/") else f"{self.uri}/{path}{self._options}"

    def log_entries(self) -> list[FileInfo]:
        """The files of the log; none if there is no log."""
        with file_errors(self.path):
            filesystem, folder = locate(f"{self.uri}/{LOG}{self._options}")
            return list(filesystem.get_file_info(FileSelector(folder, allow_not_found=True)))

    @property
    def _is_remote(self) -> bool:
        return "://" in self.path and not self.path.startswith("file:")

    @property
    def _options(self) -> str:
        return "".join(self.path.partition("?")[1:]) if self._is_remote else ""


def _local_path(path: str) -> str:
    return unquote(_LOCAL.sub("", path)) if path.startswith("file:") else path
