"""Every remedy that a message offers is tried: the messages are found in the sources, and each has a case that produces it and does as
it says."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import config_remedies
import pytest
import remedies
import remedies_of_boxes
import remedies_of_data
import remedies_of_frames
import remedies_of_functions
import remedies_of_init
import remedies_of_machine
import remedies_of_masks
import remedies_of_models
import remedies_of_series
import remedies_of_simulations
import remedies_of_strategies
import remedies_of_targets
import remedies_of_training
import remedies_of_transformers
import remedy_cases
from config_remedies import GONE

from pipelines.config.load import parse
from pipelines.errors import ConfigError, LockstepError
from pipelines.serving.http.request import RequestError

CASES = {
    **remedy_cases.CASES,
    **remedies_of_strategies.CASES,
    **remedies_of_targets.CASES,
    **remedies_of_data.CASES,
    **remedies_of_frames.CASES,
    **remedies_of_functions.CASES,
    **remedies_of_init.CASES,
    **remedies_of_models.CASES,
    **remedies_of_training.CASES,
    **remedies_of_machine.CASES,
    **remedies_of_boxes.CASES,
    **remedies_of_masks.CASES,
    **remedies_of_series.CASES,
    **remedies_of_simulations.CASES,
    **remedies_of_transformers.CASES,
}
IN_PLACE = (*remedy_cases.IN_PLACE, *remedies_of_data.IN_PLACE, *remedies_of_training.IN_PLACE)
TRIED_ELSEWHERE: dict[str, tuple[str, str]] = {
    "of the logits of a head that workers divide; give the head": ("unit/test_tensor_parallel.py", 'head["head"](hidden, targets)'),
    "but models of kind {} have no average; set it to 0": ("unit/test_search.py", '"shakespeare.yaml", {"tune.combine": 0}'),
    "but no task of this installation combines models; set it to 0": ("unit/test_search.py", '"adult.yaml", {"tune.combine": 0}'),
    "task.use leaves out each feature of {}; use one of": ("unit/test_left_out_features.py", "check_training(config, version)"),
    "page {} cannot be written: {}; name another file": ("unit/test_planner.py", 'write_plan_page(plan, tmp_path / "plan.html")'),
    "set the address where the trainings of this dataset are": ("unit/test_clean.py", "at the address where the trainings are"),
    "name a version of this config, or": ("integration/test_increments.py", "run(settings, parent_name=first.version) == second"),
    "cannot be read: {}; restore the file": ("unit/test_dataset.py", "index.write_bytes(content)  # restored"),
    "MLflow takes no working folder with both kinds of quotes": ("unit/test_tracking.py", "monkeypatch.chdir(tmp_path)"),
    "cast it in source.query, or all rows are read": ("integration/test_increments.py", "the types of the query are those of the parent"),
    "give a column of dates, timestamps or whole numbers": ("integration/test_increments.py", 'newest="seen_on"'),
    "is given beside --statement, which names its own run; leave it out": ("unit/test_statements.py", "names its own run; leave it out"),
    "; name the file of a private key, and one to write": ("unit/test_statements.py", "name the file of a private key, and one to write"),
    "; mend it, or uninstall its package": ("unit/test_slices.py", '"def print(): ...")  # mended'),
    "which is not installed here; install that package": ("unit/test_slices.py", "With the package installed, which is the other remedy"),
    "decides as the model in MLflow in {} of": ("unit/test_export_magnitudes.py", "test_eight_bits_that_decide_otherwise_are_refused"),
    "or less, or make source.windows.history longer": (
        "applications/forecasting/test_forecasting.py",
        'task(network="transformer", patch=12)',
    ),
    "which changes matrices of linear layers before the last": ("unit/test_muon.py", '**changes, optimizer="adamw"'),
    "optimizer is muon, which needs whole matrices": ("unit/test_muon.py", 'strategy=strategy, optimizer="adamw"'),
    "have one name but for their endings": ("applications/segmentation/test_init_volumes.py", 'remove("labels/*.gz")'),
    "leave {} out in source.query: SELECT * EXCEPT": ("unit/test_init_roles.py", '"SELECT * EXCEPT (weeks) FROM toy"  # the remedy'),
    "far from all others, is a number; if it marks a missing value": ("unit/test_init_values.py", "nullif(marked, -999)"),
    "those of aliases counted at each place; use fewer aliases": ("unit/test_config_faults.py", "test_fewer_aliases_are_read"),
    "comments and lines to skip fill its first part": ("unit/test_records.py", "replace(dialect, multiline=True).splits"),
    "; take their name, such as regexp_extract(path,": ("integration/test_etl_query.py", "regexp_extract(path, '[^/]+$', 0) AS s"),
    "modificationTime is another one where": ("integration/test_etl_query.py", "modificationTime is another one where"),
    "stop other programs, and run again": ("unit/test_own_ray.py", "started_again"),
    "for a random split, remove dataset.split.group": ("unit/test_init_tables.py", "for a random split, remove dataset.split.group"),
    "a missing value in other columns; if it is a class, remove nullValue": ("unit/test_init_values.py", 'pop("nullValue")'),
    "begins values, remove comment from the options": ("unit/test_init_values.py", "are_rows_without_the_option"),
    "for numbers, write try_cast(": ("unit/test_init_values.py", "; for numbers, write "),
    "and no number; for its seconds, write": ("unit/test_init_values.py", "; for its seconds, write "),
    "have % and others none; for shares of 1, write": ("unit/test_init_values.py", "for shares of 1, write "),
    "are not read; for times, write try_to_timestamp": ("unit/test_init_values.py", "are not read; for times, write try_to_timestamp"),
    "are no column; to make one, rename them to": ("unit/test_init_tables.py", 'rename(tmp_path / "plain" / "year=2020")'),
    "with _ or a dot, such as {}; to read it, rename it": ("unit/test_init_tables.py", 'rename(tmp_path / "p2.csv")'),
    "for a model without {}, add WHERE": ("unit/test_init_values.py", "SELECT y FROM t WHERE y NOT IN"),
    "which nothing predicts; if it is one, name another target": ("unit/test_init_values.py", 'draft(tmp_path, columns, "b")'),
    "for another, change encoding in the options": ("unit/test_init_values.py", '["options"]["encoding"]'),
    "for a time in {} since 1970, write {}": ("unit/test_init_values.py", "timestamp_seconds(other)"),
    "to keep them apart, write {} for {} in source.query": ("unit/test_init_values.py", "to keep them apart"),
    "for {}, write = {} for = {} in source.query": ("unit/test_init_values.py", 'replace("= 2", "= 1")'),
    "are numbers; for classes, name one column with --target": ("unit/test_init_values.py", "a part of it alone"),
    "and several targets must be numbers that vary; name one column": ("unit/test_init_values.py", "a part of it alone"),
    "if it means that the value is missing, add WHERE": ("unit/test_init_values.py", "WHERE y <> 'NA'"),
    "if it is {}, write {} in source.query": ("unit/test_init_values.py", "if it is 2 June 2024, write try_to_date"),
    "for a quantity, set its encoder to standardize": ("unit/test_init_tables.py", "for a quantity, set its encoder to standardize"),
    "neither a table nor a folder of a known kind": ("unit/test_init_tables.py", "neither a table nor a folder of a known kind"),
    "are not numbered by frequency; encode it by words, or": (
        "applications/language/test_word_models.py",
        "encode it by words, or remove cutoffs",
    ),
    "and those of other splits cost it much; lower vocabulary": ("applications/language/test_word_models.py", "; lower vocabulary"),
    "has no effect{}; {}, or remove": ("unit/test_effects.py", "CASES"),
    "but the split validation of {run.place} has no rows": ("unit/test_effects.py", "unset it, or add the split"),
    "is true, but the model has no batch norm": ("unit/test_effects.py", "use a model that has, such as task.batch_norm"),
    "auto is for features; name an encoder": ("unit/test_config.py", "auto is for features; name an encoder"),
    "{} {} is given by {}; uninstall one": ("unit/test_slices.py", "uninstall one"),
    "which is no function: {}; name one of pipelines.tasks.answers": ("unit/test_export_code.py", "which is no function"),
    "the code of module {} is not found; encode its columns": ("unit/test_export_code.py", "encode its columns yourself"),
    "is given, which strategy {} does not support; set strategy to ddp or exact": (
        "unit/test_fine_tuning.py",
        'Train.model_validate({name: GIVEN[name], "strategy": "exact"})',
    ),
    "matches frozen parameters only, which have no rate; remove it": ("unit/test_fine_tuning.py", "which have no rate; remove it"),
    "has the factor of a pattern before it; move it to the front": ("unit/test_fine_tuning.py", "before it; move it to the front"),
    "but the weights in {} have {}; restore them": ("unit/test_initial_weights.py", "restore them, or remove digest"),
    "which need one each; to use GPUs, set train.workers to": ("unit/test_gpus.py", '(1, 1, "auto", True, "")'),
    "no replica has answered in time; send": (
        "integration/test_endpoint_http.py",
        "no replica has answered in time; send the request again",
    ),
    "lower train.grad_accum_steps": ("unit/test_federated.py", "lower train.grad_accum_steps"),
    "set train.epochs to more than train.step_epochs": ("unit/test_effects.py", '"train.epochs": 11'),
    "set train.epochs to early_stopping + 2 or more": ("unit/test_effects.py", '"train.epochs": 4 + 2'),
    "after epoch {}, which is step {}, and train.max_steps is {}; raise it": ("unit/test_checks.py", '{"max_steps": 31}'),
    "so that no outer step would bring replicas together; lower it": ("unit/test_checks.py", '"inner_steps": 4'),
    "all of which would send whole gradients; lower it, or remove": ("unit/test_checks.py", '"start_step": 3'),
    "which names no series; take a column of single": ("integration/test_windows.py", "CAST(array(1) AS string) AS tags"),
    "and so does source.query; rename it there with AS": ("integration/test_windows.py", "3D AS other"),
    "and so no place in their series; add WHERE": ("integration/test_windows.py", "WHERE hour IS NOT NULL"),
    "make one row of them by GROUP BY": ("integration/test_windows.py", "GROUP BY hour"),
    "goes back to an earlier split": ("integration/test_windows.py", "test_remedies_of_order_and_of_splits_work"),
    "sheets that are not hidden ({} in all); set sheet": ("unit/test_excel.py", 'read(path, "id", sheet="Data")'),
    "have no stored value, since the program that wrote them": ("unit/test_excel.py", "as another program would have written it"),
    "is no whole .xlsx workbook": ("unit/test_excel.py", "without a password"),
    "unpacks to {} bytes, and may to": ("unit/test_excel.py", "LARGEST_BYTES"),
    "correct the query of the table": ("unit/test_sqlite.py", 'query="SELECT count(*) AS n FROM people"'),
    "the file is damaged, encrypted, or of another format": ("unit/test_sqlite.py", "test_what_is_no_database_is_one_line"),
    "is cut: it has {} bytes of": ("unit/test_sqlite.py", '"cut"'),
    "which no cell of {} holds; choose": ("integration/test_cell_tables.py", "born date, paid decimal(6,2)"),
    "are predicted together, and {}; correct the value": ("unit/test_series_rows.py", "test_p7_the_last_rows_of_series_are_predicted"),
    "has no visible sheet with rows; give a file": ("unit/test_init_cell_tables.py", "give a file that has one"),
    "has no table with rows; give a database": ("unit/test_init_cell_tables.py", "test_a_database_is_drafted_from_its_largest_table"),
    "write them into the first row": ("unit/test_init_cell_tables.py", "write them into the first row"),
    "has a header, and no rows; give a file": ("unit/test_init_cell_tables.py", "give a file that has some"),
    "and not {}; name another as source.tables": ("unit/test_init_cell_tables.py", "name another as source.tables.NAME.sheet"),
    "is of the file that Spark happens to read": ("integration/test_sources_binary.py", "set file_column of the table to a name"),
    "there is no _metadata: set file_column": ("integration/test_sources_binary.py", "set file_column of the table to a name"),
    "where Spark widens only": ("integration/test_parquet_types.py", "SELECT CAST(a AS {kind}) AS a"),
    "or rename one in the file": ("integration/test_parquet_types.py", 'rename_columns(["V", "w"'),
    "would read its rows for each; name it in one": ("integration/test_parquet_types.py", "in one of the paths"),
    "or set options: {mergeSchema: true}": ("integration/test_parquet_types.py", "mergeSchema=True"),
    "differ in their columns: {}; make them tables of their own": ("integration/test_parquet_types.py", "of their own, with one type"),
    "leave it out of the table's schema": ("integration/test_parquet_types.py", '"a long") == [(7,)]'),
    "had no part in the loss, and strategy ddp waits": (
        "integration/test_remedies_of_training.py",
        "take_step(Unused(requires_grad=False)",
    ),
    "stopped and saved after step {}; run the same command": ("integration/test_train.py", "run the same command to resume"),
    "the workers have not saved within {} s, and": ("integration/test_train.py", "the_same_command_goes_on_whatever_ended"),
    "check their workers, or raise train.timeout_seconds": ("unit/test_server_state.py", "patient.ready(0)"),
    "run the driver in the cluster's own image": ("unit/test_installed.py", "as in the cluster's own image"),
    "listens on {}, which other machines can reach": ("integration/test_local_ray.py", "which other machines can reach"),
    "Ray has no room for the workers": ("integration/test_train.py", "Ray has no room for the workers"),
    "give the table a schema without it": ("integration/test_parquet_types.py", '"a long") == [(7,)]'),
    "name the folder {}={} for NULL": ("integration/test_folder_columns.py", 'rename(tmp_path / f"only/code={NULL}")'),
    "list the files as paths, which have no such columns": ("integration/test_folder_columns.py", "list the files as paths"),
    "in its schema, or rename the folder": ("integration/test_folder_columns.py", "# the remedy"),
    "name those of the records too": ("integration/test_folder_columns.py", "# names those of the records too"),
    "and make numbers of it in the query": ("integration/test_sources.py", "SELECT CAST(value AS int) AS v FROM t"),
    "declare the column as a number in the table's schema": (
        "integration/test_numbers_in_text.py",
        "declared_as_a_number_needs_no_cast_in_the_query",
    ),
    "the token is missing or wrong; send Authorization: Bearer TOKEN": (
        "integration/test_endpoint_http.py",
        'send_request(port, "/metrics")[0] == 200',
    ),
    "Too many requests wait; send it again later": ("integration/test_endpoint_http.py", "set(statuses) == {200, 503}"),
    "which this server does not run; train with the function": ("unit/test_served_functions.py", "serves_a_model_of_a_module_s_function"),
    "than the config, which would run; use the config of the run": ("unit/test_served_functions.py", "read_subject(config, from_source"),
    "has no operator for {} of torch; write the network without it": ("integration/test_export.py", "network=Sums()"),
    "has no test rows to compare models on; give dataset.split": ("integration/test_export.py", "has no test rows to compare models on"),
    "a batch has exactly {} rows, export.max_batch_rows: pad it": ("exports/test_other_hardware.py", 'model.run_id, "stablehlo"'),
    "is being promoted as version {} ({}); run again after it": ("unit/test_registry.py", "is being promoted as version 1"),
    "the champion is now version {}, not {}; run again": ("unit/test_registry.py", 'promote(served, "replaced") == "3"'),
    "may not have been moved to it: {}; run the same command again": ("unit/test_registry.py", 'promote(served, "away") == "3"'),
    "was set in its place; run the same": ("unit/test_registry.py", 'promote(served, "overwritten") == "3"'),
    "promote a run with --run instead": ("unit/test_registry.py", 'promote(served, "only_one") == "2"'),
    "is a value, not a section; write --{} VALUE": ("unit/test_config.py", '"--name", "x"]).name == "x"'),
    "not a YAML value: {}; quote the text": ("unit/test_config.py", '"--source.tables.people.path", "\'[1\'"'),
    "is deleted from the registry, so nothing is rolled back": ("unit/test_registry.py", '"4"  # the remedy'),
    "does not become the champion again: its run {} is gone": ("unit/test_registry.py", "its run is gone for good"),
    "the champion refuses all of the test rows": ("unit/test_registry.py", "the champion refuses all of the test rows"),
    "the champion cannot predict the rows of this config": ("unit/test_registry.py", "the champion cannot predict the rows"),
    "the process of the model ended with {}: {}; run again": ("unit/test_registry.py", "the process of the model ended with"),
    "set `keep: last` and `vocabulary_of: [both columns]` for both": ("unit/test_tasks_rows.py", "set `keep: last` and `vocabulary_of"),
    "wait for it, stop it, or change the config": ("unit/test_tracking.py", "wait for it, stop it, or change the config"),
    "whose weights cannot be read from {}: {}; use a run": ("unit/test_init_from.py", "initial_weights(started, open_dataset(started))"),
    "not lie on its volume; give both the same": ("applications/segmentation/test_segmentation.py", "give both the same"),
    "keeps missing numbers, which models of Spark ML": ("integration/test_missing.py", "set its impute to median"),
    "--model is boosting, and Spark's boosting has two classes": (
        "integration/test_tasks_slices.py",
        "--model is boosting, and Spark's boosting has two classes",
    ),
    "which has no baseline; jobs/baseline.py": ("integration/test_tasks_slices.py", "which has no baseline"),
    "LIMIT or OFFSET without ORDER BY takes": ("integration/test_etl_query.py", '"SELECT * FROM t ORDER BY i LIMIT 1"'),
    "depends on the order of rows; take a function that does not": (
        "integration/test_etl_query.py",
        "array_sort(collect_list(struct(i, x)))",
    ),
    "for the reason that it printed above": ("unit/test_doctor.py", "remove it, and run again"),
    "set SPARK_DRIVER_MEMORY to more": ("integration/test_remedies_of_data.py", 'launch_java("512m")'),
    "keep one of each by SELECT DISTINCT": ("integration/test_etl_splits.py", '"both remedies work"'),
    "or raise dataset.max_share_error": ("unit/test_shares.py", '"which is a remedy"'),
    "send an environment with `spark-submit": ("cluster/test_packed.py", "test_executors_run_in_the_environment_that_is_sent_along"),
    "executors' Python, and not on this machine": ("cluster/test_packed.py", "is the executors' Python, and not on this machine"),
    "fitted on: {}; make each row from one row": ("integration/test_frame_query.py", "AS hour FROM churn WHERE `left` IS NOT NULL"),
    "of which Spark reads {}; set options": ("integration/test_folders.py", '"recursiveFileLookup": True}}'),
    "its footer is corrupt; write the file again": ("integration/test_remedies_of_data.py", "whose_footer_leads_outside"),
    "give the folder above as the path, without wildcards": ("integration/test_remedies_of_data.py", "are_found_by_their_folder"),
    "is another value in every run; write the date out": ("integration/test_etl_query.py", "TIMESTAMP '2026-11-26 00:00:00' AS r"),
    "depends on who runs it, and where": ("integration/test_etl_query.py", "'the user' AS r"),
    "may give another result each time it is computed": ("integration/test_etl_query.py", "pmod(xxhash64(id), 100) < 10"),
    "more than once; name its columns apart": ("integration/test_etl_query.py", "x AS second, s AS part"),
    "a name that ETL needs; rename": ("integration/test_etl_query.py", "x AS second, s AS part"),
    "give more rows of them, or make one value of several": ("unit/test_strata.py", "values of more rows are in every split"),
    "give more rows, or lower train.shards to at most": ("applications/trees/test_boosting.py", "# lower train.shards"),
    "of the split train are 0; change task.class_weights": ("applications/trees/test_boosting.py", "# other weights"),
    "train on a sample of the rows": ("applications/trees/test_boosting.py", "# a sample of the rows"),
    "has no trees; set task.kind to trees": ("applications/trees/test_boosting.py", "has no trees; set task"),
    "whose categories have no order; encode it as a number": ("applications/trees/test_forest.py", '"categories": 4}).check()'),
    "whose terms have no order; remove it from monotone": ("unit/test_tabular_terms.py", "# without the text"),
    "which is fold {} of {}; leave that start out": ("integration/test_time_folds.py", "without that start, and with another"),
    "give values of it, each later than the one before": ("integration/test_time_folds.py", "# values of it, in order"),
    "give more rows of them, fewer folds": ("integration/test_cross_validation.py", "fewer folds and more rows are remedies"),
    "is in {} {}; give fewer folds, or": ("integration/test_cross_validation.py", "fewer folds and more rows are remedies"),
    "name a column with one value in a group": ("integration/test_etl_splits.py", "id DIV 2000 AS c"),
    "leave dataset.split.group out, or name": ("integration/test_etl_splits.py", "a column of smaller groups is another"),
    "choose other bounds": ("integration/test_etl_splits.py", "other bounds are a remedy"),
    "which source.query needs for features": ("integration/test_after_training.py", "add it to the input"),
    "as its schema says; change the schema": ("integration/test_after_training.py", "change the schema or the files"),
    "is also a column of the predictions": ("integration/test_after_training.py", "name the columns to keep, without it"),
    "no file with a colon in its name": ("integration/test_folders.py", 'rename(tmp_path / "12-30.jpg")'),
    "write the file again, or leave it out": ("integration/test_remedies_of_data.py", "is_written_again_or_left_out"),
    "point SPARK_LOCAL_DIRS to a larger one": ("integration/test_etl_jobs.py", "test_a_full_disk_is_told_in_a_line"),
    "is taken; choose another": ("integration/test_sources.py", "_record is taken; choose another"),
    **dict.fromkeys(
        (
            "all of these lie equally deep",
            "put the files of each class into a folder",
            "into one of them, or away",
            "or remove the class",
            "too few to split; add some",
            "takes for a pattern; rename",
            "none of them hidden by a name",
            "name a folder that has files of a single kind",
            "or a colon; rename",
            "cannot be decoded, such as {}; get the files again",
        ),
        ("unit/test_init_folders.py", "remedy(folder)"),
    ),
    **dict.fromkeys(
        (
            "save masks as PNG files with a grey value",
            "s, rename their folder",
            "do not fill three splits; add some",
            "correct those files, or remove them",
            "has a box; add boxes, or name another folder",
            "are files of annotations; name a folder",
            "has half of them; add the images",
        ),
        ("unit/test_init_annotated.py", "remedy(tmp_path)"),
    ),
    **dict.fromkeys(
        (
            "save each label as one NIfTI volume",
            "put volumes into a folder images",
            "save each as one NIfTI file of three axes",
            "save labels as NIfTI volumes with a whole number",
        ),
        ("applications/segmentation/test_init_volumes.py", "remedy(tmp_path)"),
    ),
    "give the classes their names in dataset.target": (
        "applications/segmentation/test_init_volumes.py",
        '["classes"] = ["background", "front", "back"]',
    ),
    "for more, lower spacing and raise shape": (
        "applications/segmentation/test_init_volumes.py",
        '|= {"spacing": [1, 1, 1], "shape": [12, 10, 8]}',
    ),
    "is no table: the class is {}; leave --target out": ("unit/test_init_folders.py", 'Request(str(tmp_path), "", "pets")'),
    **dict.fromkeys(
        (
            "name data that have two classes or more",
            "{} are files without a byte, first {}; remove",
            "in which ETL reads no single lines; save",
            "says Python: {}; get this file again",
            "add one with train in its name",
            "has no file of labels; add one",
            "move each set to a folder of its own",
            "make files of images of equal size",
            "labels, for {} images; get both files again",
            "name a file of one of them",
            "is no text; name a folder without this file",
            "too few for a language model; add some",
        ),
        ("unit/test_init_sounds_and_texts.py", "remedy(folder)"),
    ),
    "has not seen, split by dataset.split.group, {}, without": ("unit/test_init_series.py", "# what the draft of a panel offers"),
    "without them, remove source.windows and its features": ("unit/test_init_series.py", "# what the assumption offers"),
    "longer training may help; raise": ("unit/test_trivial.py", "# it has levelled off"),
    "mend the data, or write a config by hand": ("integration/test_first_config.py", "# the remedies"),
    "by more than source.drift allows, so that no version is made": ("integration/test_diff_etl.py", "# the remedy"),
    **dict.fromkeys(
        (
            "must be at least 0{}; give another number",
            "holds no dataset version; give the folder of a version",
            "of a pipeline, and two are compared; name two versions",
            "is no dataset version, and has no file of rows; give",
            "it has {}: give a table with the columns of the query, or of the raw table",
            "; save it anew as Parquet, CSV with a header or JSON Lines",
            "; cast it where the table is written",
        ),
        ("unit/test_diff.py", "# the remedies"),
    ),
    **dict.fromkeys(
        ("rows were not compared: a version has no keys", "has no keys, so that an altered row counts as one removed"),
        ("integration/test_diff_etl.py", 'basis == "keys"'),
    ),
    "does not exist; give one of the files in the folder": ("integration/test_erase.py", "give one of the files in the folder erasures"),
    "is not as it was written; restore it from a copy": ("integration/test_erase.py", "certificates[0].write_bytes(copy)"),
    "first, which goes on": ("integration/test_erase.py", "len(erase_rows(settings, []).certificates) == 1"),
    "is in use by {}; wait until": ("integration/test_erase.py", "assert len(erase_rows(settings, []).certificates) == 1"),
    "is not the version that --from began with": ("integration/test_erase.py", "is not the version that --from began with"),
    "old files wait for their removal": ("integration/test_erase.py", "erase_rows(settings, [], grace_seconds=0)"),
    "still training on them: run {}; stop it": ("integration/test_erase.py", "client.set_terminated(run_ids[1])"),
    "nothing was changed; add --yes": ("integration/test_erase.py", "nothing was changed; add --yes to erase"),
    "is unfinished: run `lockstep erase {}`": ("integration/test_erase.py", "is unfinished: run `lockstep erase"),
    "--grace {} is no time": ("integration/test_erase.py", "--grace soon is no time"),
    "is no such value; give it as the query of the dataset does": ("integration/test_erase.py", "test_a_wrong_key_is_refused"),
    "holds no predictions; give the folder that was --output": ("integration/test_erase.py", "predictions=[str(output)]"),
    "before rows were erased from it; train again, and use that run": ("integration/test_erase.py", "check_is_not_erased("),
    "so that the erasure cannot go on; restore it": ("integration/test_erase.py", "goes_on_once_it_is_restored"),
    "make it again with jobs/etl.py, or remove its folder": ("integration/test_erase.py", "without its folder"),
    "holds no rows; give a path": ("integration/test_sources.py", "a path that holds rows is the remedy"),
    "plain Parquet is read with columns": ("integration/test_remedies_of_data.py", "is_encoded_by_etl"),
}
MOST_WAITING = 2
TRIED_BY = {
    **dict.fromkeys(("pipelines/lifecycle/clean/stored_versions.py", "pipelines/lifecycle/clean/terminal_text.py"), "unit/test_clean.py"),
    "pipelines/tracking/dataset_readers.py": "unit/test_clean.py",
    **dict.fromkeys(
        ("pipelines/config/tuning.py", "pipelines/tuning/space.py", "pipelines/tuning/winner_file.py"),
        "unit/test_search.py",
    ),
    "pipelines/tuning/population.py": "unit/test_population.py",
    "pipelines/init/search_section.py": "unit/test_init_search.py",
    "pipelines/tuning/trial_versions.py": "unit/test_trial_versions.py",
    "pipelines/report/search_page.py": "unit/test_search_page.py",
    **dict.fromkeys((f"pipelines/{name}.py" for name in ("tuning/driver", "tracking/search_run")), "unit/test_search_runs.py"),
    **{
        str(path.relative_to(remedies.ROOT)): "unit/test_delta.py and unit/test_delta_values.py"
        for path in remedies.ROOT.glob("pipelines/formats/delta/*.py")
    },
    **{
        str(path.relative_to(remedies.ROOT)): "integration/test_spark_source.py"
        for path in remedies.ROOT.glob("pipelines/formats/spark_source/*.py")
    },
    **dict.fromkeys(
        (
            f"pipelines/formats/postgres/{name}.py"
            for name in ("columns", "draft", "fingerprint", "reading", "relation", "server", "snapshot", "table")
        ),
        "integration/test_postgres.py",
    ),
    **dict.fromkeys((f"pipelines/formats/postgres/{name}.py" for name in ("address", "settings")), "unit/test_postgres_parts.py"),
    **dict.fromkeys((f"pipelines/data/sources/{name}.py" for name in ("arrow_files", "numpy_columns")), "unit/test_arrow_files.py"),
    **dict.fromkeys(
        (
            f"pipelines/formats/{name}.py"
            for name in (
                *("avro/records", "duckdb/database", "duckdb/settings", "hdf5/datasets", "hdf5/draft", "huggingface_dataset/folders"),
                *("huggingface_dataset/shards", "numpy/arrays"),
            )
        ),
        "unit/test_arrow_files.py",
    ),
    **dict.fromkeys(
        ("pipelines/data/sources/arrow_table.py", "pipelines/formats/orc/footers.py", "pipelines/init/tables/arrow_samples.py"),
        "integration/test_arrow_tables.py",
    ),
    **{
        str(path.relative_to(remedies.ROOT)): "applications/ensembles/test_ensemble_members.py"
        for path in remedies.ROOT.glob("pipelines/applications/ensembles/*.py")
    },
    "pipelines/config/train/init_from.py": "unit/test_initial_weights.py",
    **dict.fromkeys(
        (f"pipelines/planning/{name}.py" for name in ("candidates", "failures", "hardware", "layouts", "transformer")),
        "unit/test_planning.py",
    ),
    **{
        str(path.relative_to(remedies.ROOT)): "unit/test_training_simulation.py"
        for path in remedies.ROOT.glob("pipelines/planning/simulation/*.py")
    },
    **{str(path.relative_to(remedies.ROOT)): "unit/test_costs.py" for path in remedies.ROOT.glob("pipelines/costs/*.py")},
    "pipelines/planner/plan.py": "unit/test_planner.py",
    "pipelines/planner/pass_timing.py": "unit/test_calibration.py",
    "pipelines/planner/at_hand.py": "unit/test_at_hand.py",
    **{
        str(path.relative_to(remedies.ROOT)): "unit/test_iceberg.py and unit/test_iceberg_faults.py"
        for path in remedies.ROOT.glob("pipelines/formats/iceberg/*.py")
    },
    "pipelines/launch/initial_weights.py": "unit/test_initial_weights.py",
    "pipelines/train/initial_model.py": "unit/test_initial_weights.py",
    "pipelines/train/fine_tuning.py": "unit/test_fine_tuning.py and unit/test_lora.py",
    "pipelines/lifecycle/statements/attest.py": "unit/test_statements.py",
    "pipelines/lifecycle/statements/checks.py": "unit/test_statements.py",
    "pipelines/lifecycle/statements/croissant.py": "unit/test_statements.py",
    "pipelines/lifecycle/statements/dataset_record.py": "unit/test_statements.py",
    "pipelines/lifecycle/statements/digest_log.py": "unit/test_statements.py",
    "pipelines/lifecycle/statements/envelope.py": "unit/test_statements.py",
    "pipelines/lifecycle/statements/finished_run.py": "unit/test_statements.py and integration/test_statement.py",
    "pipelines/lifecycle/statements/keys.py": "unit/test_statements.py",
    "pipelines/lifecycle/statements/model_signature.py": "unit/test_statement_documents.py",
    "pipelines/lifecycle/statements/provenance.py": "unit/test_statements.py",
    "pipelines/lifecycle/statements/verification.py": "unit/test_statements.py",
}
"""Files whose messages are all tried by these tests."""
WAITING: dict[str, dict[str, int]] = {
    "need a machine whose memory is full, or a file that Spark alone refuses": {
        "pipelines/data/sources/source_errors.py": 2,
    },
}
"""Messages without a case, by the reason and the file: at most so many. The numbers may only become smaller."""


def find_message(fragment: str) -> str:
    """The message in the sources that contains the fragment."""
    (message,) = [message for message in remedies.message_places() if fragment in message]
    return message


def change_values(values: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    values = deepcopy(values)
    for dotted, value in changes.items():
        *sections, last = dotted.split(".")
        inner = values
        for section in sections:
            inner = inner.setdefault(section, {})
        if value == GONE:
            inner.pop(last, None)
        else:
            inner[last] = value
    return values


@pytest.mark.parametrize("fragment", config_remedies.CASES, ids=str)
def test_a_config_with_the_remedy_of_its_error_is_valid(fragment: str) -> None:
    broken, offered = config_remedies.CASES[fragment]
    values = change_values(config_remedies.VALUES, broken)
    with pytest.raises(ConfigError) as error:
        parse(values, "x.yaml")
    assert remedies.pattern(find_message(fragment)).search(str(error.value)), str(error.value)
    for changes in offered:
        parse(change_values(values, changes), "x.yaml")


@pytest.mark.parametrize("fragment", CASES, ids=str)
@pytest.mark.usefixtures("one_thread")
def test_what_an_error_offers_works(fragment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    broken, offered = CASES[fragment]
    with pytest.raises((LockstepError, ValueError, RequestError)) as error:
        broken(tmp_path)
    assert remedies.pattern(find_message(fragment)).search(str(error.value)), str(error.value)
    for number, mended in enumerate(offered):
        folder = tmp_path / str(number)
        folder.mkdir()
        mended(tmp_path if fragment in IN_PLACE else folder)


def test_every_message_has_a_case_or_waits_for_one() -> None:
    fragments = [*config_remedies.CASES, *CASES, *TRIED_ELSEWHERE]
    places = remedies.message_places()
    assert [fragment for fragment in fragments if sum(fragment in message for message in places) != 1] == [], "no message, or several"
    without: dict[str, list[str]] = {}
    for message, (place, *_) in places.items():
        file = place.rpartition(":")[0]
        if file not in TRIED_BY and not any(fragment in message for fragment in fragments):
            without.setdefault(file, []).append(message)
    allowed = {file: number for files in WAITING.values() for file, number in files.items()}
    more = {file: messages for file, messages in without.items() if len(messages) > allowed.get(file, 0)}
    assert more == {}, "messages without a case: give them one in tests/remedy_cases.py or tests/config_remedies.py"
    assert sum(allowed.values()) <= MOST_WAITING


@pytest.mark.parametrize("fragment", TRIED_ELSEWHERE, ids=str)
def test_a_remedy_tried_elsewhere_is_named_there(fragment: str) -> None:
    file, words = TRIED_ELSEWHERE[fragment]
    assert words in (remedies.ROOT / "tests" / file).read_text()
