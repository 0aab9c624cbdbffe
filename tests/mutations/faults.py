"""Sixty faults, each in one line, that break a promise or a capability, and the tests that have to notice."""

from typing import NamedTuple


class Fault(NamedTuple):
    promise: str
    file: str
    text: str
    """As it stands in the file, once."""
    instead: str
    tests: str
    """Which tests pytest runs, of files or by name."""


FAULTS = (
    Fault("P1", "README.md", "digits.yaml --train.workers 2", "digits.yaml --train.worker 2", "tests/unit/test_docs.py"),
    Fault(
        "P1", "pipelines/commands.py", 'COMMANDS[name](f"lockstep', 'COMMANDS["train"](f"lockstep',
        "tests/unit/test_commands.py -k runs_its",
    ),
    Fault("P2", "pipelines/data/loader/order.py", "rows - self.rows, 0)", "rows - self.rows - 1, 0)", "tests/unit/test_order.py"),
    Fault(
        "P2", "pipelines/data/loader/order.py",
        "range(rank * shards // world_size, (rank + 1) * shards // world_size)",
        "range(rank * (shards // world_size), (rank + 1) * (shards // world_size))",
        "tests/unit/test_order.py",
    ),
    Fault(
        *("P2", "pipelines/data/loader/batches.py", "slice(start, start + count), end)", "slice(0, count), end)"),
        "tests/unit/test_loader.py",
    ),
    Fault(
        "P2",
        "pipelines/data/versions/manifest.py",
        "balance.inherited != in_parts",
        "balance.inherited < in_parts",
        "tests/unit/test_balance.py",
    ),
    Fault("P3", "pipelines/data/loader/order.py", "[0, window, shard, epoch]", "[0, window, 0, epoch]", "tests/unit/test_order.py"),
    Fault("P3", "pipelines/data/loader/loader.py", "* stride + start}", "* stride}", "tests/unit/test_draws.py tests/unit/test_loader.py"),
    Fault("P4", "pipelines/data/loader/loader.py", "0 if ended else self._step,", "self._step,", "tests/unit/test_loader.py"),
    Fault("P4", "pipelines/data/loader/batches.py", "shard.find(start)[0] if", "0 if", "tests/unit/test_loader.py"),
    Fault("P4", "pipelines/train/saver.py", "run.loader.load_state_dict(record.position)", "pass", "tests/unit/test_loop.py"),
    Fault(
        "P5", "pipelines/train/exact/exact.py", "seed, number, shard)", "seed, number, self._context.rank)",
        "tests/unit/test_exact.py",
    ),
    Fault(
        "P5", "pipelines/strategies/replica.py", "seed, number, self._number, *within)", "seed, number, *within)",
        "tests/unit/test_local_sgd.py -k dropout",
    ),
    Fault(
        "P5", "pipelines/train/exact/exact.py",
        "microbatch in zip(self._owned, batch, strict=True):\n            self._buffers.restore(before)\n",
        "microbatch in zip(self._owned, batch, strict=True):\n",
        "tests/unit/test_exact.py",
    ),
    Fault(
        "P5", "pipelines/train/ordered_all_reduce.py", "tree_sum(self._root, node_sums.get)", "sum(node_sums.values())",
        "tests/unit/test_all_reduce.py",
    ),
    Fault(
        "P5", "pipelines/train/checkpoint/checkpoint_record.py",
        "{digests[name] for digests in by_worker if name in digests} != {recorded.get(name)}]",
        "name not in recorded]",
        "tests/unit/test_digest_log.py",
    ),
    Fault(
        "P6", "pipelines/etl/splits/split_assignment.py", "isnull({column}), {value}' for", "{value}' for",
        "tests/integration/test_etl_splits.py",
    ),
    Fault(
        "P6", "pipelines/etl/splits/split_assignment.py", '_hash_with_salt("part", F.col(ROW))', "F.monotonically_increasing_id()",
        "tests/integration/test_etl_splits.py tests/integration/test_etl_fit.py",
    ),
    Fault(
        "P6", "pipelines/etl/write.py", "is_repeat = _repeats(place[order])", "is_repeat = np.zeros(len(order), bool)",
        "tests/unit/test_sort.py",
    ),
    Fault("P6", "pipelines/data/features/exact_sums.py", "values = values - high", "values = 0 * high", "tests/unit/test_statistics.py"),
    Fault("P6", "pipelines/data/versions/versions.py", "or pair[1].identity == identity]", "or True]", "tests/unit/test_dataset.py"),
    Fault(
        "P6", "pipelines/tracking/params_and_tags.py", '"dataset.digest": version.digest,', '"dataset.digest": version.manifest.version,',
        "tests/unit/test_tracking.py",
    ),
    Fault(
        "P7", "pipelines/data/features/numbers.py",
        "np.where(np.isnan(values), self.state[\"impute\"], values)", "np.nan_to_num(values)",
        "tests/unit/test_numbers.py",
    ),
    Fault(
        "P7", "pipelines/serving/model/predictor.py", "predicted.set_axis(np.flatnonzero(accepted))", "predicted",
        "tests/integration/test_serve.py",
    ),
    Fault(
        "P7", "pipelines/serving/model/entry.py", "if (present := file_digest(folder / name)) != digest:", "if False:",
        "tests/integration/test_served_files.py",
    ),
    Fault("P8", "pipelines/data/versions/storage.py", "text != _append_seal(", "not _append_seal(", "tests/unit/test_sealed.py"),
    Fault("P8", "pipelines/data/loader/reader.py", '_check(content, group.checksum, "its bytes")', "pass", "tests/unit/test_reader.py"),
    Fault("P8", "pipelines/train/saver.py", "if first := next(", "if 0 and next(", "tests/unit/test_loop.py"),
    Fault(
        "P8", "pipelines/tracking/sender.py", "if step > last_steps.get(mlflow_metric(name), -1)", "if step >= 0",
        "tests/unit/test_tracking.py",
    ),
    Fault(
        "P8", "pipelines/etl/run.py", "remove_attempt(attempt.filesystem, attempt.root, attempt.name)", "pass",
        "tests/integration/test_conserved.py -k leaves_no_file",
    ),
    Fault(
        "P8", "pipelines/launch/own_ray.py", "as start, blocked_signals(), restored", "as start, restored",
        "tests/unit/test_own_ray.py",
    ),
    # Of the capabilities, which the promises hold for too.
    Fault(
        *("strategies", "pipelines/strategies/parameter_server/watermarks.py", "or step in self.early[shard]", ""),
        "tests/unit/test_server_state.py",
    ),
    Fault(
        *("strategies", "pipelines/strategies/parameter_server/watermarks.py",
          "self.next_steps[shard] += 1", "self.next_steps[shard] = step + 1"),
        "tests/unit/test_server_state.py",
    ),
    Fault(
        *("strategies", "pipelines/strategies/replica.py", "delta.to(parameter.dtype).neg()", "delta.to(parameter.dtype)"),
        "tests/unit/test_local_sgd.py",
    ),
    Fault(
        *("strategies", "pipelines/strategies/replica.py", "nesterov=momentum > 0)", "nesterov=False)"),
        "tests/unit/test_local_sgd.py -k diloco",
    ),
    Fault(
        *("strategies", "pipelines/strategies/federated/rounds.py", 'self._clients.weighting == "rows"', "True"),
        "tests/unit/test_federated.py",
    ),
    Fault(
        *("strategies", "pipelines/train/ddp/ddp.py",
          "if self._feedback:\n            self._feedback.even_out()", "if False:\n            pass"),
        "tests/unit/test_compression.py",
    ),
    Fault(
        *("strategies", "pipelines/train/ddp/ddp.py",
          "averaged_over=1 if self._in_memory else self._context.world_size", "averaged_over=1"),
        "tests/unit/test_strategy.py tests/unit/test_compression.py",
    ),
    Fault(
        *("serving", "pipelines/serving/registry/gates.py", "and value >= bound", "and value > bound - 1"),
        "tests/unit/test_registry.py -k bounds",
    ),
    Fault(
        *("serving", "pipelines/serving/registry/alias.py", "!= str(ticket.version)", "== None"),
        "tests/unit/test_registry.py -k champion",
    ),
    Fault(
        *("serving", "pipelines/serving/http/request.py", "hmac.compare_digest(request_digest, digest) and", "True and"),
        "tests/unit/test_endpoint.py",
    ),
    Fault(*("serving", "pipelines/serving/model/column_casts.py", '"half_towards_infinity"', '"down"'), "tests/unit/test_registry.py"),
    Fault(
        *("strategies", "pipelines/strategies/parameter_server/server.py", "(mode.staleness or 0):", "(mode.staleness or 0) + 1:"),
        "tests/unit/test_server_state.py -k newest",
    ),
    Fault(
        *("strategies", "pipelines/strategies/federated/rounds.py",
          "for client in client_by_place.values())", "for client in played.values())"),
        "tests/unit/test_federated.py -k every_number",
    ),
    Fault(
        *("strategies", "pipelines/train/dtensor.py", "if not placement.is_replicate():", "if True:"),
        "tests/unit/test_sharded.py -k losses",
    ),
    Fault(
        *("serving", "pipelines/serving/http/replica.py", "room -= len(rows)", "room -= 1"),
        "tests/unit/test_endpoint.py -k batch",
    ),
    Fault(
        *("serving", "pipelines/serving/registry/gates.py",
          "candidate_metric, champion_metric = (", "champion_metric, candidate_metric = ("),
        "tests/unit/test_registry.py -k champion",
    ),
    Fault(
        *("serving", "pipelines/serving/export/parity.py",
          "np.isnan(output) & np.isnan(expected)", "np.isnan(output) | np.isnan(expected)"),
        "tests/integration/test_export.py -k finite",
    ),
    Fault(*("report", "pipelines/runtime/templates.py", "autoescape=True", "autoescape=False"), "tests/unit/test_page.py"),
    Fault(
        *("report", "pipelines/ranking.py", "- positives / 2)", ")"),
        "tests/unit/test_metrics.py tests/unit/test_registry.py",
    ),
    Fault(
        *("report", "pipelines/report/run_page.py", 'column(trivial, "validation")', 'column(trivial, "test")'),
        "tests/unit/test_trivial.py -k page",
    ),
    Fault(
        *("monitor", "pipelines/monitor/worker_monitor.py", "busy or behind", "behind"),
        "tests/unit/test_stragglers.py -k standstill",
    ),
    Fault(
        *("monitor", "pipelines/tracking/run_heartbeat.py", "not (is_this_host and not _is_alive_process(beat.process))", "True"),
        "tests/unit/test_tracking.py",
    ),
    Fault(
        *("monitor", "pipelines/monitor/worker_monitor.py",
          "own_seconds[other] / max(1, later[other].shards)", "own_seconds[other]"),
        "tests/unit/test_stragglers.py -k shards",
    ),
    Fault(
        *("etl", "pipelines/etl/splits/split_assignment.py",
          'hash_share("split", unit)', 'hash_share("split", F.col(ROW))'),
        "tests/integration/test_etl_splits.py -k group",
    ),
    Fault(
        *("etl", "pipelines/etl/quarantine.py", 'row["record_min"] or "", row["count_all"])', 'row["record_min"] or "")'),
        "tests/integration/test_conserved.py -k half",
    ),
    Fault(*("P3", "pipelines/train/learning_rate.py", "(step + 1) / warmup_steps", "step / warmup_steps"), "tests/unit/test_schedules.py"),
    Fault(
        *("P3", "pipelines/train/learning_rate.py", "step // steps_per_epoch // settings.step_epochs", "step // settings.step_epochs"),
        "tests/unit/test_schedules.py",
    ),
    Fault(
        *("P6", "pipelines/data/features/categories.py", "pc.greater_equal(counts", "pc.greater(counts"),
        "tests/unit/test_categories.py",
    ),
    Fault(
        *("P8", "pipelines/spark/job_endings.py", " and JOB_MARK.items() <= process.environ().items()", ""),
        "tests/unit/test_interrupts.py",
    ),
)  # fmt: skip
