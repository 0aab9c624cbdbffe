"""Checks, on the driver, that a dataset has the clients that the config asks for."""

from pipelines.config.did_you_mean import suggestion
from pipelines.config.train import Train
from pipelines.dataset.schema import FREE
from pipelines.dataset.versions import Version
from pipelines.errors import ConfigError
from pipelines.federated.clients import read_column, rows_of_clients
from pipelines.federated.privacy import check_accountant
from pipelines.parallel.strategies import meta_model
from pipelines.tasks.base import Task


def check_federated(settings: Train, version: Version, task: Task) -> None:
    """Raise ConfigError if `clients.by` names no column of clients, for a row without a client, for more clients in a round than there
    are, and for noise that would not cover all that a client changes. Reads the column."""
    if settings.strategy != "federated":
        return
    clients = settings.clients
    columns = {column.name: column for column in version.columns}
    if (column := columns.get(clients.by)) is None:
        given = f"it has {', '.join(columns)}"
        raise ConfigError(
            f"train.clients.by is {clients.by}, which is no tensor column of {version.root}; {suggestion(clients.by, columns, given)}; a "
            "column that the model does not see belongs in dataset.carried"
        )
    if column.shape or "int" not in column.dtype:
        raise ConfigError(
            f"train.clients.by is {clients.by}, which has {column.dtype} of shape {column.shape} per row; it must be one whole number: "
            "encode it with label or vocabulary"
        )
    encoder = version.manifest.encoders[clients.by].feature.get("encoder")
    if encoder in ("hash", "quantile"):
        raise ConfigError(
            f"train.clients.by is {clients.by}, which the encoder {encoder} makes: different clients get the same number from it; use "
            "label or vocabulary"
        )
    found = rows_of_clients(read_column(version, "train", column))
    if encoder == "vocabulary" and FREE in found.values:
        raise ConfigError(
            f"{found.counts[0]} training rows have no client: {clients.by} is NULL or rare there; leave them out by source.expect, or "
            "encode it with label"
        )
    if clients.per_round > len(found.values):
        raise ConfigError(
            f"train.clients.per_round is {clients.per_round}, but {clients.by} has only {len(found.values)} clients; lower it"
        )
    if clients.noise and clients.delta * len(found.values) >= 1:
        raise ConfigError(
            f"train.clients.delta is {clients.delta:g}; it must be less than 1 / {len(found.values)}, the number of clients; lower it"
        )
    check_accountant(clients)
    if clients.noise and (buffers := [name for name, _ in meta_model(task).named_buffers()]):
        raise ConfigError(
            f"train.clients.noise is {clients.noise:g}, but the model has buffers, such as {buffers[0]}, to which no noise is added; leave "
            "out batch norm"
        )
