"""The run of an ETL: rows in, out and refused, seconds by stage, the data's profile."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from mlflow import MlflowClient
from mlflow.entities import Metric
from mlflow.exceptions import MlflowException
from mlflow.tracking.context.registry import resolve_tags

from pipelines.config import Config
from pipelines.dataset.manifest import Manifest
from pipelines.tracking.client import connect, experiment_of, key, log_params, reaching
from pipelines.tracking.liveness import HEARTBEAT, beating, correct_dead, heartbeat

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EtlRun:
    client: MlflowClient
    uri: str
    run_id: str

    def finish(self, manifest: Manifest, seconds_by_stage: Mapping[str, float]) -> None:
        """Log what came of it. Training runs link here by the manifest's `run_id`."""
        refused = sum(manifest.quarantined.values())
        values = {
            "rows/parsed": manifest.rows_parsed,
            "rows/quarantined": refused,
            **{f"rows/{split}": summary.rows for split, summary in manifest.splits.items()},
            **{f"quarantined/{reason}": rows for reason, rows in manifest.quarantined.items()},
            **{f"seconds/{stage}": seconds for stage, seconds in seconds_by_stage.items()},
        }
        now = int(time.time() * 1_000)
        with reaching(self.uri):
            self.client.log_batch(
                self.run_id, [Metric(key(name), float(value), now, 0) for name, value in values.items()], synchronous=True
            )
            for name, value in {"dataset.digest": manifest.digest, "dataset.version": manifest.version}.items():
                self.client.set_tag(self.run_id, name, value)
            self.client.log_text(self.run_id, manifest.to_json().decode(), "manifest.json")
            self.client.log_dict(self.run_id, manifest.profile, "profile.json")


@contextmanager
def etl_run(config: Config) -> Iterator[EtlRun]:
    """An MLflow run that ends as what happens inside: FINISHED, FAILED on an exception, KILLED on an interrupt."""
    uri = config.tracking.uri
    client = connect(uri)
    experiment = experiment_of(client, config)
    with reaching(uri):
        correct_dead(client, experiment)
        tags = {**resolve_tags(), **config.tracking.tags, "lockstep.kind": "etl", HEARTBEAT: heartbeat()}
        run_id = client.create_run(experiment, tags=tags, run_name=f"{config.name}-etl").info.run_id
        client.log_text(run_id, config.model_dump_json(indent=1), "config.json")
        log_params(client, run_id, config)
    try:
        with beating(client, run_id):
            yield EtlRun(client, uri, run_id)
    except BaseException as error:
        interrupted = isinstance(error, KeyboardInterrupt | SystemExit)
        try:
            client.set_terminated(run_id, "KILLED" if interrupted else "FAILED")
        except MlflowException as away:  # the next command corrects it; what happened matters more
            log.warning("run %s could not be ended: %s", run_id, str(away).splitlines()[0])
        raise
    with reaching(uri):
        client.set_terminated(run_id, "FINISHED")
