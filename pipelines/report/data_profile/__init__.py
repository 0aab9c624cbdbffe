"""The page about the data of one ETL, for its run in MLflow: what each column holds, what became of the rows, and what looks wrong.

1. `findings`   the tests: leaks, constants, splits that differ, contents that several splits share (`coincidence`: more than chance
                gives), skewed tasks.
2. `coding`     turns values into the numbers of bins and categories that tests and charts count.
3. `columns`    describes each raw column by split, and `words` the encoders in words.
4. `described`  puts these together as JSON, `data.json`.
5. `textfile`   writes the numbers that Prometheus watches.
6. `drawing`    draws that JSON as one HTML file, `data.html`; `histograms` draws a column's values by split.
"""

import json
import logging
from contextlib import suppress

import numpy as np

from pipelines.data.versions.data_profile import Files, Survey
from pipelines.report.data_profile.described import describe
from pipelines.report.data_profile.drawing import MOST_FINDINGS, draw
from pipelines.report.data_profile.textfile import write_metrics

log = logging.getLogger(__name__)

DATA_PAGE = "data.html"


def files_of(survey: Survey) -> Files:
    """`data.json`, and the page `data.html`, which is a function of it. What the tests have found is also logged, and the numbers are
    written for Prometheus."""
    with suppress(OSError):  # whoever watches sees that the file is old
        write_metrics(survey)
    with np.errstate(all="ignore"):  # numbers near the largest float
        described = describe(survey)
    found = described["findings"]
    for finding in found[:MOST_FINDINGS]:
        if finding["kind"] != "shares":  # which the last lines of ETL have
            log.warning("data: %s", finding["text"])
    if len(found) > MOST_FINDINGS:
        log.warning("data: %d more warnings are in data.json of run %s", len(found) - MOST_FINDINGS, described["run_id"])
    return {"data.json": json.dumps(described, indent=1), DATA_PAGE: draw(described)}
