"""The page about the data of one ETL, for its run in MLflow: what each column holds, what became of the rows, and what looks wrong.

1. `findings`   has the tests: leaks, constants, splits that differ, contents that several splits share, skewed tasks; and
                measures how much of the target one column explains.
2. `coding`     turns values into the numbers of bins and categories that tests and charts count.
3. `column_profiles` describes each raw column by split, and lets encoders describe themselves.
4. `description` puts these together as JSON, `data.json`, with the rows that splits would share by chance.
                `samples` are a few rows, pictures and refused records.
5. `textfile`   writes the numbers that Prometheus watches.
6. `page`       makes the HTML file `data.html` of that JSON.
"""

import json
import logging
from contextlib import suppress

import numpy as np

from pipelines.data.versions.data_profile import Files, Survey
from pipelines.report.data_profile.description import describe_data
from pipelines.report.data_profile.page import MOST_FINDINGS, data_page
from pipelines.report.data_profile.textfile import write_metrics

log = logging.getLogger(__name__)

DATA_PAGE = "data.html"


def profile_files(survey: Survey) -> Files:
    """`data.json`, and the page `data.html`, which is a function of it. Also logs the findings, and writes the numbers for Prometheus."""
    with suppress(OSError):  # the file's age tells Prometheus
        write_metrics(survey)
    with np.errstate(all="ignore"):  # numbers near the largest float
        description = describe_data(survey)
    findings = description["findings"]
    for finding in findings[:MOST_FINDINGS]:
        if finding["kind"] != "shares":  # which the last lines of ETL have
            log.warning("data: %s", finding["text"])
    if len(findings) > MOST_FINDINGS:
        log.warning("data: %d more warnings are in data.json of run %s", len(findings) - MOST_FINDINGS, description["run_id"])
    return {"data.json": json.dumps(description, indent=1), DATA_PAGE: data_page(description)}
