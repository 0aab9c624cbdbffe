"""Serves a model over HTTP until SIGINT or SIGTERM.

python cluster/serve.py conf/adult.yaml [--endpoint.replicas 2] [--section.setting VALUE ...]
"""

import sys
from threading import Event

from pipelines.command_line import exit_on_error, read_config_argument


def main() -> None:
    config = read_config_argument("cluster/serve.py", sys.argv[1:])
    from pipelines.serving.http.start import endpoint  # noqa: PLC0415, after the config has been read

    with endpoint(config) as address:
        print(f"{address}/docs", flush=True)
        Event().wait()


if __name__ == "__main__":
    exit_on_error(main)
