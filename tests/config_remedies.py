"""Remedies of errors of a config: what produces each, and what it offers instead."""

from typing import Any

VALUES: dict[str, Any] = {
    "name": "adult",
    "source": {
        "tables": {"people": {"format": "csv", "path": "train.csv", "schema": "age int, job string"}},
        "query": "SELECT * FROM people",
    },
    "dataset": {"path": "data", "features": {"age": "standardize", "job": "vocabulary"}, "target": {"rich": "binary"}},
    "task": {"kind": "tabular"},
}
FEDERATED = {"train.strategy.kind": "federated", "train.strategy.client_column": "job", "train.global_batch": 80}
NOISY = {**FEDERATED, "train.strategy.noise": 1.0, "train.strategy.clip": 1.0, "train.strategy.weighting": "equal", "train.seed": 7}
SHARDED = {"train.strategy.kind": "sharded", "train.strategy.shard": 4, "train.workers": 4}
LOCAL = {"train.strategy.kind": "local_sgd"}
SERVERS = {"train.strategy.kind": "parameter_server"}
NONE: dict[str, Any] = {}
LAGS = {"source.windows": {"order": "age", "by": "job", "lags": {"age": 1}}, "dataset.split": {"group": "job"}}
BY_TIME = {"dataset.split": {"time": "age", "validation": 40, "test": 60}}
FORECAST: dict[str, Any] = {
    "source.windows": {"order": "age", "by": "job", "columns": "load", "history": 2, "horizon": 1},
    "dataset.split": {"group": "job"},
    "dataset.features": {"history": "scale"},
    "dataset.target": {"future": "scale"},
    "task.kind": "forecasting",
}
SCALE = {"encoder": "scale", "shape": [2, 1]}
GONE = "gone"
"""In place of a value: the setting is not there."""

_LANGUAGE: dict[str, Any] = {
    "dataset.features": {"job": {"encoder": "words", "length": 8}},
    "dataset.target": {},
    "task": {"kind": "language"},
}
_BLENDED: dict[str, Any] = {
    "dataset.features": {"job": {"encoder": "image", "shape": [1, 8, 8]}},
    "task": {"kind": "vision", "mixup": 0.2},
}
CASES: dict[str, tuple[dict[str, Any], tuple[dict[str, Any], ...]]] = {
    "{} is {}, but it is a number; write {} if that is meant": ({"train.epochs": True}, ({"train.epochs": 1},)),
    "nothing changes; give it {}, or remove it": (
        {"train.changes": [{"after_epoch": 2}]},
        ({"train.changes": [{"after_epoch": 2, "lr": 0.1}]}, {"train.changes": GONE}),
    ),
    "give one for each epoch, the first one first": (
        {"train.changes": [{"after_epoch": 2, "lr": 0.1}, {"after_epoch": 1, "lr": 0.2}]},
        ({"train.changes": [{"after_epoch": 1, "lr": 0.2}, {"after_epoch": 2, "lr": 0.1}]},),
    ),
    "which none of the {} epochs follows; raise epochs": (
        {"train.changes": [{"after_epoch": 5, "lr": 0.1}], "train.epochs": 5},
        ({"train.epochs": 6}, {"train.changes": GONE}),
    ),
    "which rows are of one thing; set key": (
        {"dataset.newest": "age", "dataset.key": []},
        ({"dataset.key": ["age"]}, {"dataset.newest": ""}),
    ),
    "and an epoch's last step may have an odd one; set it to drop": (
        {**_BLENDED, "train.remainder": "keep"},
        ({"train.remainder": "drop"},),
    ),
    "for {} shards with grad_accum_steps {}, {}; set it to a multiple": (
        {**_BLENDED, "train.global_batch": 40},
        ({"train.global_batch": 48},),
    ),
    "parallel is auto, which chooses a number of workers, and workers is {}; remove one": (
        {"train.parallel": "auto", "train.workers": [1, 4]},
        ({"train.parallel": GONE}, {"train.workers": GONE}),
    ),
    "balance.leave_out is true, but workers is": (
        {"train.balance": {"kind": "auto", "leave_out": True}, "train.workers": 4},
        ({"train.workers": [1, 4]}, {"train.balance": {"kind": "auto"}}),
    ),
    "leave_out is true, but kind is equal": (
        {"train.balance": {"kind": "equal", "leave_out": True}, "train.workers": [1, 4]},
        ({"train.balance": {"leave_out": True}}, {"train.balance": {"kind": "equal"}}),
    ),
    "strategy is federated, but strategy.client_column is not set": (
        {**FEDERATED, "train.strategy.client_column": ""},
        ({"train.strategy.client_column": "job"},),
    ),
    "it must be at most {}, strategy.per_round": (
        {**FEDERATED, "train.workers": 12, "train.shards": 16, "train.strategy.per_round": 10},
        ({"train.workers": 10}, {"train.strategy.per_round": 16}),
    ),
    "precision is fp16, whose loss scaling would begin anew": (
        {**FEDERATED, "train.precision": "fp16"},
        ({"train.precision": "bf16"}, {"train.precision": "fp32"}),
    ),
    "but strategy.clip is not set": ({**NOISY, "train.strategy.clip": None}, ({"train.strategy.clip": 1.0},)),
    "and strategy.weighting is rows": ({**NOISY, "train.strategy.weighting": "rows"}, ({"train.strategy.weighting": "equal"},)),
    "but seed is 0, the default": ({**NOISY, "train.seed": 0}, ({"train.seed": 8_271_064},)),
    "a tensor column's name has 1 to 100 characters": (
        {"dataset.features": {"a\tb": "standardize"}},
        ({"dataset.features": {"ab": {"encoder": "standardize", "column": "a\tb"}}},),
    ),
    "{}: both feature and target": (
        {"dataset.features": {"rich": "standardize"}},
        ({"dataset.features": {"wealth": {"encoder": "standardize", "column": "rich"}}},),
    ),
    "add passthrough: {{}: weight} to dataset": (
        {"task.sample_weight": "importance"},
        ({"task.sample_weight": "importance", "dataset.passthrough": {"importance": "weight"}},),
    ),
    "name each once, the lowest first": (
        {"task.loss": "quantiles", "task.quantiles": [0.9, 0.1]},
        ({"task.quantiles": [0.1, 0.9]}, {"task.quantiles": [0.1, 0.5, 0.9]}),
    ),
    "write each once, in ascending order": (
        {**_LANGUAGE, "task.cutoffs": [20, 10]},
        ({"task.cutoffs": [10, 20]},),
    ),
    "or more, or name fewer": (
        {**_LANGUAGE, "task.cutoffs": [10, 20, 30, 40]},
        ({"task.width": 256}, {"task.cutoffs": [10, 20]}),
    ),
    "more than once; name each class once": (
        {"dataset.target": {"rich": {"encoder": "label", "order": ["no", "no"]}}},
        ({"dataset.target": {"rich": {"encoder": "label", "order": ["no", "yes"]}}},),
    ),
    "words and characters are both empty": (
        {"dataset.features": {"job": {"encoder": "terms", "words": []}}},
        ({"dataset.features": {"job": {"encoder": "terms", "words": [1]}}},),
    ),
    "name each length once, the smallest first": (
        {"dataset.features": {"job": {"encoder": "terms", "words": [2, 1, 2]}}},
        ({"dataset.features": {"job": {"encoder": "terms", "words": [1, 2]}}},),
    ),
    "beside columns; put it into columns": (
        {"dataset.target": {"rich": {"encoder": "vector", "column": "a", "columns": ["b", "c"]}}},
        ({"dataset.target": {"rich": {"encoder": "vector", "columns": ["a", "b", "c"]}}},),
    ),
    "with which a weight may be negative": (
        {"task.sample_weight": "importance", "dataset.passthrough": {"importance": "identity"}},
        ({"dataset.passthrough": {"importance": "weight"}},),
    ),
    "decides the split of each row; leave stratify out": (
        {"dataset.split": {"by": "job", "stratify": "job"}},
        (
            {"dataset.split": {"by": "job"}},
            {"dataset.split": {"train": 0.8, "validation": 0.1, "test": 0.1, "stratify": "job"}},
        ),
    ),
    ", or give each series to one split, as": (
        {**LAGS, "dataset.split": {"train": 0.8, "validation": 0.1, "test": 0.1}},
        (BY_TIME, {"dataset.split": {"group": "job"}}),
    ),
    "a row's past might be in a later split": (
        {**LAGS, "dataset.split": {"time": "day", "validation": 40, "test": 60}},
        (BY_TIME, {"source.windows": {"order": "day", "by": "job", "lags": {"age": 1}}}),
    ),
    "which moves rows by chance, but a row of source.windows": (
        {**LAGS, "dataset.split": {"by": "part", "validation": 0.1}},
        (BY_TIME, {"dataset.split": {"by": "part"}}),
    ),
    "which is in the row's future, the target of": (
        {**FORECAST, "dataset.features": {"load": "standardize"}},
        ({"dataset.features": {"history": "scale"}},),
    ),
    "{} is set, but {}; set them together": (
        {**FORECAST, "source.windows": {"order": "age", "by": "job", "columns": "load", "lags": {"load": 1}}},
        ({"source.windows": FORECAST["source.windows"]},),
    ),
    "is of 1 row, which has no deviation; take 2 rows": (
        {**LAGS, "source.windows": {"order": "age", "by": "job", "rolling": {"age": {"std": 1}}}},
        ({"source.windows": {"order": "age", "by": "job", "rolling": {"age": {"std": 2}}}},),
    ),
    "so that each row would be a series; leave it out of by": (
        {**LAGS, "source.windows": {"order": "age", "by": ["job", "age"], "lags": {"age": 1}}},
        ({"source.windows": {"order": "age", "by": ["job"], "lags": {"age": 1}}},),
    ),
    "it makes no column; set lags, rolling, or columns": (
        {**LAGS, "source.windows": {"order": "age", "by": "job"}},
        (
            {"source.windows": {"order": "age", "by": "job", "lags": {"age": 1}}},
            {"source.windows": {"order": "age", "by": "job", "rolling": {"age": {"mean": 3}}}},
            {"source.windows": {"order": "age", "by": "job", "columns": "age", "history": 2}},
        ),
    ),
    "is named more than once; name it once": (
        {**LAGS, "source.windows": {"order": "age", "by": "job", "lags": {"age": [1, 1]}}},
        ({"source.windows": {"order": "age", "by": "job", "lags": {"age": [1]}}},),
    ),
    "moments_of is set, and so is mean or deviation": (
        {**FORECAST, "dataset.features": {"history": {**SCALE, "moments_of": ["load"], "mean": [0], "deviation": [1]}}},
        (
            {"dataset.features": {"history": {**SCALE, "moments_of": ["load"]}}},
            {"dataset.features": {"history": {**SCALE, "mean": [0], "deviation": [1]}}},
        ),
    ),
    "is set, which format {} does not read": (
        {"source.tables": {"people": {**VALUES["source"]["tables"]["people"], "sheet": "Data"}}},
        (
            {"source.tables": VALUES["source"]["tables"]},
            {"source.tables": {"people": {"format": "excel", "path": "a.xlsx", "schema": "age int", "sheet": "Data"}}},
        ),
    ),
    "sqlite reads a table or a query": (
        {"source.tables": {"people": {"format": "sqlite", "path": "a.db", "schema": "age int"}}},
        (
            {"source.tables": {"people": {"format": "sqlite", "path": "a.db", "schema": "age int", "table": "people"}}},
            {"source.tables": {"people": {"format": "sqlite", "path": "a.db", "schema": "age int", "query": "SELECT 1 AS age"}}},
        ),
    ),
    "one fold is the test, the next one selects": ({"dataset.split": {"folds": 2}}, ({"dataset.split": {"folds": 5}},)),
    "decide what each model is trained, validated and tested on": (
        {"dataset.split": {"folds": 5, "by": "job"}},
        ({"dataset.split": {"folds": 5}}, {"dataset.split": {"by": "job"}}),
    ),
    "which does not train a task of kind {}; set it": (
        {"task": {"kind": "trees"}, "train.strategy": "ddp"},
        ({"train.strategy": "boosting"}, {"train.strategy": GONE}),
    ),
    "impute is keep, but task.kind": (
        {"dataset.features.age": {"encoder": "standardize", "impute": "keep"}},
        ({"dataset.features.age": {"encoder": "standardize", "impute": "median"}}, {"task": {"kind": "trees"}}),
    ),
    "impute is keep, which is for features": (
        {"dataset.target": {"rich": {"encoder": "standardize", "impute": "keep"}}},
        ({"dataset.target": {"rich": {"encoder": "standardize"}}},),
    ),
    "which trains no task of kind {}; set": (
        {"train.strategy": "boosting"},
        ({"task": {"kind": "trees"}}, {"train.strategy": GONE}),
    ),
    "folds by time begin where fold_starts says": (
        {"dataset.split": {"folds": 5, "time": "age"}},
        ({"dataset.split": {"time": "age", "fold_starts": ["30", "50"]}}, {"dataset.split": {"folds": 5}}),
    ),
    "starts make {} folds; the first model": (
        {"dataset.split": {"time": "age", "fold_starts": [30]}},
        ({"dataset.split": {"time": "age", "fold_starts": [30, 50]}},),
    ),
    "whose documents have no folds; give split shares": (
        {
            "dataset.split": {"folds": 5},
            "dataset.features": {"job": {"encoder": "bytes", "length": 8}},
            "dataset.target": {},
            "task": {"kind": "language"},
        },
        ({"dataset.split": {"train": 0.8, "validation": 0.1, "test": 0.1}},),
    ),
    "split.folds adds a column of this name; rename yours": (
        {"dataset.split": {"folds": 5}, "dataset.features": {"fold": "standardize"}},
        ({"dataset.features": {"part": {"encoder": "standardize", "column": "fold"}}},),
    ),
    "but dataset.split has no folds; give it": (
        {"train.fold": 1},
        ({"dataset.split": {"folds": 5}}, {"train.fold": GONE}),
    ),
    "but there are {} folds{}; choose one": (
        {"dataset.split": {"folds": 5, "repeats": 2}, "train.fold": 11},
        ({"train.fold": 1}, {"train.fold": 10}),
    ),
    "stratify and group are both": (
        {"dataset.split": {"stratify": "job", "group": "job"}},
        ({"dataset.split": {"stratify": "job"}}, {"dataset.split": {"group": "job"}}),
    ),
    "so that the model has no input; use a feature": (
        {"task.use": {"age": False, "job": False}},
        ({"task.use": {"age": False}},),
    ),
    "add it to dataset.passthrough": ({"task.slices": ["zone"]}, ({"dataset.passthrough": {"zone": "vocabulary"}},)),
    "{}: both carried and feature or target": (
        {"dataset.passthrough": {"age": "identity"}},
        ({"dataset.passthrough": {"years": {"encoder": "identity", "column": "age"}}},),
    ),
    "is no fixed-point type": (
        {"export.hls4ml.precisions": ["fixed<16>"]},
        ({"export.hls4ml.precisions": ["ap_fixed<16,6>"]},),
    ),
    "it must divide {}, the number of shards": (
        {**LOCAL, "train.strategy.replicas": 3},
        tuple({"train.strategy.replicas": number} for number in (1, 2, 4, 8)),
    ),
    "it must be at most {}, strategy.replicas": (
        {**LOCAL, "train.workers": 6},
        ({"train.workers": 4}, {"train.strategy.replicas": 8}),
    ),
    "which does not fit every number between them": (
        {**SHARDED, "train.workers": [2, 4], "train.strategy": {"kind": "sharded", "shard": 2, "replicate": "auto"}},
        (
            {"train.strategy": {"kind": "sharded", "shard": 1, "replicate": "auto"}},
            {"train.strategy": {"kind": "sharded", "shard": "auto"}},
            {"train.workers": 4},
        ),
    ),
    "{} are auto; set one of them": (
        {**SHARDED, "train.strategy": {"kind": "sharded", "shard": "auto", "replicate": "auto"}},
        (
            {"train.strategy": {"kind": "sharded", "shard": "auto", "replicate": 1}},
            {"train.strategy": {"kind": "sharded", "shard": 1, "replicate": "auto"}},
        ),
    ),
    "which makes {} workers, but workers is {}": (
        {**SHARDED, "train.workers": 3},
        ({"train.strategy": {"kind": "sharded", "shard": "auto"}}, {"train.workers": 4}),
    ),
    "which makes {} workers, and {} is auto": (
        {**SHARDED, "train.workers": 3, "train.strategy": {"kind": "sharded", "shard": 2, "replicate": "auto"}},
        ({"train.strategy": {"kind": "sharded", "shard": 3, "replicate": "auto"}}, {"train.workers": 4}),
    ),
    "whose loss scaling strategy {} does not support": (
        {**SERVERS, "train.precision": "fp16"},
        ({"train.precision": "bf16"}, {"train.precision": "fp32"}),
    ),
    "mode is bounded, but staleness is not set": (
        {**SERVERS, "train.strategy": {"kind": "parameter_server", "mode": "bounded"}},
        (
            {"train.strategy": {"kind": "parameter_server", "mode": "bounded", "staleness": 4}},
            {"train.strategy": {"kind": "parameter_server", "mode": "async"}},
        ),
    ),
    "steps is {}; write the smaller number first": ({"train.profile.steps": [60, 50]}, ({"train.profile.steps": [50, 60]},)),
    "record at most {}, whose trace fits": ({"train.profile.steps": [1, 100_000]}, ({"train.profile.steps": [1, 100]},)),
    "a name has 1 to 100 letters, digits": (
        {"source.expect": {"-age": "age > 0"}},
        ({"source.expect": {"age": "age > 0"}},),
    ),
    "{}; give names and types as Spark DDL": (
        {"source.tables.people.schema": "age, job string"},
        ({"source.tables.people.schema": "age int, name string"},),
    ),
    "are the same name in SQL, which ignores case": (
        {"source.tables.People": VALUES["source"]["tables"]["people"]},
        ({"source.tables.People": GONE, "source.tables.Others": VALUES["source"]["tables"]["people"]},),
    ),
    "members is {}, but batch_norm is true": (
        {"task.members": 4, "task.batch_norm": True},
        ({"task.members": 1}, {"task.batch_norm": False}),
    ),
    "bytes, and an experiment's name at most": ({"tracking.experiment": "x" * 300}, ({"tracking.experiment": "x" * 200},)),
    "begins or ends with a blank": ({"tracking.experiment": "x "}, ({"tracking.experiment": "x"},)),
    "letters, digits, blanks, . _ : - and /; rename it": (
        {"tracking.tags": {"owner@team": "x"}},
        ({"tracking.tags": {"owner team": "x"}},),
    ),
    "are empty or dots, as in a path; remove them": ({"tracking.tags": {"team/": "x"}}, ({"tracking.tags": {"team": "x"}},)),
    "between slashes, as a path would": ({"tracking.experiment": "../x"}, ({"tracking.experiment": "x"},)),
    "compile is true, which strategy": ({**LOCAL, "train.compile": True}, ({"train.compile": False},)),
    "workers is {}; write the smaller number first": ({"train.workers": [4, 2]}, ({"train.workers": [2, 4]},)),
    "grad_accum_steps is {}, more than the": (
        {"train.grad_accum_steps": 100},
        ({"train.grad_accum_steps": 64}, {"train.global_batch": 800}),
    ),
    "sync_batch_norm sums over workers, which strategy {}": (
        {**SERVERS, "task.batch_norm": True, "train.sync_batch_norm": True},
        ({"train.sync_batch_norm": False}, {"train.strategy": "ddp"}),
    ),
    "`{}` is missing; add it": ({"dataset.features": {"age": {}}}, ({"dataset.features": {"age": {"encoder": "standardize"}}},)),
    "which everyone who sees the run could read": (
        {"tracking.tags": {"password": "x7Jq2"}},
        ({"tracking.tags": GONE},),
    ),
    "{} needs a schema, such as": (
        {"source.tables.people.schema": GONE},
        ({"source.tables.people.schema": "age int, name string"},),
    ),
    "a name with * stands for features; name": (
        {"dataset.target": {"r*": "binary"}},
        ({"dataset.target": {"rich": "binary"}},),
    ),
    "packs one column into windows; name that": (
        {"dataset.features": {"*": {"encoder": "bytes", "length": 8}}, "dataset.target": {}},
        ({"dataset.features": {"job": {"encoder": "bytes", "length": 8}}, "task": {"kind": "language"}},),
    ),
    "a name with * names the columns itself; leave": (
        {"dataset.features": {"a*": {"encoder": "log1p", "column": "age"}}},
        ({"dataset.features": {"a*": "log1p"}},),
    ),
    "train + validation + test is": ({"dataset.split": {"train": 0.5}}, ({"dataset.split": {"train": 0.8}},)),
}
"""By a part of the message: the changes to VALUES that produce it, and those on top of them that each of its remedies names."""
