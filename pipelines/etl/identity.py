"""Names a version by everything that decides its rows.

The location of tables is not part of the name, since checksums identify their bytes. Relative file names are part of it where they
decide rows: whole files have a path column, Hive folders `column=value` make a column, and idx files are joined by their order.
"""

import json
from hashlib import sha256
from importlib.metadata import version

from pyspark.sql import SparkSession

from pipelines.config import Config
from pipelines.data.features import ENCODERS_VERSION
from pipelines.data.features.auto.choice import AUTO_VERSION
from pipelines.data.sources.base import RawTables
from pipelines.data.versions.manifest import FORMAT
from pipelines.data.versions.raw_inputs import Sources
from pipelines.etl.splits import splits
from pipelines.spark.ambient_settings import ambient_identity


def version_name(config: Config, tables: RawTables, sources: Sources, spark: SparkSession) -> str:
    """The name of the version that the config makes from the `sources`. It changes whenever a row could change."""
    statements = (config.source.sql, *config.source.expect.values())
    inputs = {
        "sources": {name: list(tables[name].identity_lines(files, statements)) for name, files in sources.items()},
        "config": config.data_identity,
        "format": FORMAT,
        "encoders": ENCODERS_VERSION,
        "order": splits.VERSION,
        "spark": spark.version,
        "time zone": spark.conf.get("spark.sql.session.timeZone"),
        "ambient": ambient_identity(spark),
    }
    inputs |= {name: version(name) for name in encoding_distributions(config)}
    if config.dataset.has_auto:
        inputs["auto"] = AUTO_VERSION
    return sha256(json.dumps(inputs, sort_keys=True).encode()).hexdigest()[:12]


def encoding_distributions(config: Config) -> set[str]:
    """The Python distributions whose versions decide how rows are encoded: decoders of files, and tokenizers."""
    return {name for settings in config.dataset.encoders.values() for name in settings.encodes_with}
