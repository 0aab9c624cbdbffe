"""The planner's functions beside closed forms, and what must hold for any hardware and layout. Each error's remedy is tried."""

from dataclasses import replace
from itertools import pairwise
from math import inf, isclose
from pathlib import Path
from time import process_time

import pytest
import yaml

from pipelines.config import load
from pipelines.errors import ConfigError
from pipelines.planning.candidates import PlanCandidate, TrainingJob, choose_plans, evaluate, find_candidates
from pipelines.planning.collectives import (
    DeviceGroup,
    all_gather_seconds,
    all_reduce_seconds,
    group,
    network,
    ring_bandwidth,
    send_seconds,
)
from pipelines.planning.failures import (
    available_interval,
    completion_seconds,
    daly_interval,
    estimate_failures,
    failure_seconds,
)
from pipelines.planning.hardware import SHEETS, parse_clusters, read_hardware, sheet_paths
from pipelines.planning.layouts import ParallelLayout, check_layout, enumerate_layouts, more_passes, parse_layout
from pipelines.planning.measured import MeasuredPasses
from pipelines.planning.memory import estimate_memory, usable_bytes
from pipelines.planning.model_costs import Activations, Layer, Matmul, ModelCosts, convert_precision
from pipelines.planning.stages import bubble_seconds, microbatches_held, worker_shares
from pipelines.planning.step_time import estimate_step, matmul_seconds
from pipelines.planning.transformer import parse_transformer

H100 = read_hardware("h100")
LLAMA = parse_transformer("llama3-8b")
SHARDED = ParallelLayout(shard=8, microbatch=2)
CONF = Path(__file__).parents[2] / "conf"


def perceptron(width: int, layers: int) -> ModelCosts:
    """Without attention, and with rows that are no tokens."""
    hidden = Layer(
        "hidden",
        layers,
        width * width + width,
        (Matmul(1, width, width, "outputs"),),
        elementwise_bytes=8 * width,
        fused_bytes=4 * width,
        activations=Activations(4 * width, 2 * width, 2 * width, 2 * width, 2 * width),
        working_bytes=4 * width,
        output_bytes=2 * width,
    )
    return ModelCosts("perceptron", (hidden,))


class TestHardware:
    @pytest.mark.parametrize("name", sorted(sheet_paths()))
    def test_every_data_sheet_is_read_and_says_where_its_figures_are_from(self, name: str) -> None:
        hardware = read_hardware(name)
        assert hardware.sources and all(fraction.source for fraction in dict(hardware.achieved).values())
        assert hardware.peak("bf16") >= hardware.peak("fp32") > 0
        assert 0 < usable_bytes(hardware) < hardware.memory_bytes

    def test_clusters_are_names_with_counts_or_a_machine(self) -> None:
        clusters = parse_clusters("h200x8,a100_40gbx64, cpu2")
        assert [(cluster.name, cluster.machines) for cluster in clusters] == [("h200x8", 1), ("a100_40gbx64", 8), ("cpu2x2", 1)]

    def test_an_unknown_name_has_similar_ones_and_a_new_sheet_is_read(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"hardware 'h20' has no data sheet; choose h200 or h100 .*, or write .*h20.yaml"):
            parse_clusters("h20x8")
        assert parse_clusters("h200x8")
        (tmp_path / "h20.yaml").write_text((SHEETS / "h200.yaml").read_text())
        assert parse_clusters("h20x8", tmp_path)

    def test_a_wrong_field_is_named(self, tmp_path: Path) -> None:
        values = yaml.safe_load((SHEETS / "h100.yaml").read_text())
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**values, "watts": -1}))
        with pytest.raises(ConfigError, match=r"mine.yaml: watts: Input should be greater than 0; correct the field"):
            read_hardware("mine", tmp_path)
        (tmp_path / "mine.yaml").write_text(yaml.safe_dump({**values, "watts": 300}))
        assert read_hardware("mine", tmp_path).watts == 300

    def test_a_precision_without_units_has_the_peak_of_the_next_wider_one(self) -> None:
        assert read_hardware("a100").peak("fp8") == read_hardware("a100").peak("bf16")
        assert read_hardware("v100").peak("bf16") == read_hardware("v100").peak("fp32")
        assert read_hardware("v100").automatic_precision == "fp32"


class TestCollectives:
    LINKS = network(H100)

    @pytest.mark.parametrize("size", [2, 3, 8])
    def test_a_ring_sends_its_share_of_the_bytes(self, size: int) -> None:
        members = DeviceGroup(size, size)
        latency = (size - 1) * H100.link_latency_seconds
        gathered = all_gather_seconds(8e9, members, self.LINKS) - latency
        assert isclose(gathered, 8e9 * (size - 1) / size / (0.8 * 450e9))
        assert isclose(all_reduce_seconds(8e9, members, self.LINKS), 2 * (gathered + latency))

    def test_a_small_all_reduce_is_a_tree(self) -> None:
        members = DeviceGroup(512, 8)
        hops = 2 * (6 * H100.network_latency_seconds + 3 * H100.link_latency_seconds)
        assert isclose(all_reduce_seconds(8, members, self.LINKS), hops, rel_tol=1e-3)

    def test_nothing_is_sent_alone(self) -> None:
        alone = DeviceGroup(1, 1)
        assert {operation(1e9, alone, self.LINKS) for operation in (all_gather_seconds, all_reduce_seconds)} == {0.0}

    def test_a_ring_over_machines_uses_all_their_cards(self) -> None:
        assert isclose(ring_bandwidth(DeviceGroup(16, 8), self.LINKS), 0.8 * 400e9)
        assert isclose(ring_bandwidth(DeviceGroup(16, 1), self.LINKS), 0.8 * 50e9)
        assert isclose(ring_bandwidth(DeviceGroup(8, 8), self.LINKS), 0.8 * 450e9)

    def test_a_message_has_a_latency_and_bytes(self) -> None:
        assert isclose(send_seconds(1e6, False, self.LINKS), 14e-6 + 1e6 / 40e9)
        assert send_seconds(1e6, True, self.LINKS) < send_seconds(1e6, False, self.LINKS)

    def test_consecutive_ranks_share_a_machine(self) -> None:
        assert group(((8, 1),), 8) == DeviceGroup(8, 8)
        assert group(((32, 8),), 8) == DeviceGroup(32, 1)
        layout = ParallelLayout(replicate=2, shard=4, pipeline=2, context=2, tensor=2)
        assert layout.group(8, "tensor") == DeviceGroup(2, 2)
        assert layout.group(8, "pipeline") == DeviceGroup(2, 2)
        assert layout.group(8, "shard", "context") == DeviceGroup(8, 2)
        assert layout.group(8, "replicate") == DeviceGroup(2, 1)


class TestTransformer:
    @pytest.mark.parametrize(
        ("name", "parameters"),
        [
            ("mpt-760m", 760_470_528),
            ("mpt-1b", 1_315_950_592),
            ("mpt-7b", 6_658_859_008),
            ("mpt-30b", 29_975_214_080),
            ("mpt-70b", 64_862_437_376),
            ("llama3-8b", 8_030_261_248),
            ("llama3-70b", 70_553_706_496),
            ("gpt2", 124_439_808),
        ],
    )
    def test_parameters_are_those_published(self, name: str, parameters: int) -> None:
        assert parse_transformer(name).parameters == parameters

    def test_the_flops_of_mfu_count_attention(self) -> None:
        """llm-foundry's formula, 3 * 2 * n * T + 3 * L * 2 * 2 * d * T**2, whose parameters include positions, norms and biases."""
        model = parse_transformer("mpt-7b")
        formula = 3 * 2 * 6_658_859_008 * 2_048 + 3 * 32 * 2 * 2 * 4_096 * 2_048**2
        assert isclose(model.model_flops, formula, rel_tol=2e-3)

    def test_a_name_may_have_changes_and_a_shape_may_stand_alone(self) -> None:
        assert parse_transformer("llama3-8b,sequence=32768").units_per_row == 32_768
        shape = "layers=32,width=4096,heads=32,kv_heads=8,mlp=14336,vocabulary=128256,sequence=8192,gated=yes"
        assert parse_transformer(shape).parameters == LLAMA.parameters

    @pytest.mark.parametrize(
        ("text", "message", "remedy"),
        [
            ("lama3-8b", "choose llama3-8b or", "llama3-8b"),
            ("lama", "or give layers=", "layers=2,width=64,heads=2,vocabulary=100,sequence=16"),
            ("gpt2,widht=64", "'widht' is no field of a transformer; choose width", "gpt2,width=1536"),
            ("gpt2,layers=two", "set it to one, such as layers=1", "gpt2,layers=1"),
            (
                "layers=2,heads=2,vocabulary=100,sequence=16",
                "has no width; add width=NUMBER",
                "layers=2,heads=2,vocabulary=100,sequence=16,width=8",
            ),
            ("gpt2,layers=0", "raise the one that is 0", "gpt2,layers=1"),
            ("gpt2,heads=7", "heads is 7, which does not divide 768; set it to a divisor", "gpt2,heads=6,kv_heads=6"),
        ],
    )
    def test_a_model_that_is_none_is_one_line_whose_remedy_works(self, text: str, message: str, remedy: str) -> None:
        with pytest.raises(ConfigError, match=message):
            parse_transformer(text)
        assert parse_transformer(remedy).parameters > 0


class TestLayouts:
    def test_a_description_is_read_back(self) -> None:
        layout = ParallelLayout(shard=4, tensor=2, microbatch=6, checkpointing="full", compile=False, reshard_after_forward=False)
        assert parse_layout(layout.describe()) == layout
        assert parse_layout("shard=4", accumulation=3).global_batch == 12

    @pytest.mark.parametrize(
        ("text", "message", "remedy"),
        [
            ("shards=8", "'shards' is no setting of one; choose shard", "shard=8"),
            ("shard=eight", "shard is 'eight'; set it to a number from 1", "shard=8"),
            ("shard=8,compile=maybe", "set it to true or false", "shard=8,compile=true"),
            ("shard=8,checkpointing=all", "set it to none, selective, alternate, full", "shard=8,checkpointing=full"),
            ("shard=4", r"is 4 workers, but there are 8; set shard to make up 8", "shard=8"),
            ("tensor=8,kv=1", "'kv' is no setting", "tensor=8"),
            ("shard=8,full_copies=true", "set it to false, or all degrees but replicate to 1", "replicate=8,full_copies=true"),
            ("context=8,sequence_parallel=true,compression=bf16", "divided gradients do not have; set compression to none", "context=8"),
            ("pipeline=8,microbatch=7", "set microbatches to a multiple of pipeline that divides the rows", "pipeline=8,microbatch=8"),
            (
                "pipeline=8,microbatch=8,schedule=ZBVZeroBubble,compile=true",
                "set schedule to Interleaved1F1B, or checkpointing to none",
                "pipeline=8,microbatch=8,schedule=Interleaved1F1B,compile=true",
            ),
            ("pipeline=8,microbatch=8,precision=fp16", "pipeline allows neither fp16 nor", "shard=8,precision=fp16"),
            ("tensor=8,compile=true", "which training does not combine; set compile to false", "tensor=8,compile=false"),
            ("tensor=8,precision=fp16", "which training does not combine; set precision to bf16", "tensor=8,precision=bf16"),
            ("replicate=8,full_copies=true,offload=true", "full copies do not have; set offload to false", "replicate=8,full_copies=true"),
        ],
    )
    def test_a_layout_that_training_refuses_is_one_line_whose_remedy_works(self, text: str, message: str, remedy: str) -> None:
        with pytest.raises(ConfigError, match=message):
            check_layout(parse_layout(text), LLAMA, 8)
        check_layout(parse_layout(remedy), LLAMA, 8)

    @pytest.mark.parametrize(
        ("model", "text", "message", "remedy"),
        [
            ("llama3-8b", "tensor=3", "tensor is 3, which does not divide 32 heads; set it to a divisor of 32", "shard=3"),
            ("gpt2", "tensor=4", "input and output of gpt2 share weights; set tensor to 1", "shard=4"),
            ("gpt2", "pipeline=4,microbatch=4", "share weights; set pipeline to 1", "shard=4"),
            ("gpt2", "pipeline=16,microbatch=16", "gpt2 has 12 blocks; lower pipeline", "shard=16"),
            ("gpt2,sequence=1020", "context=4", "8 does not divide 1020 tokens; set it to 1 or lower it", "context=2"),
        ],
    )
    def test_a_degree_must_divide_the_model(self, model: str, text: str, message: str, remedy: str) -> None:
        costs, layout = parse_transformer(model), parse_layout(text)
        with pytest.raises(ConfigError, match=message):
            check_layout(layout, costs, layout.workers)
        mended = parse_layout(remedy)
        check_layout(mended, costs, mended.workers)

    @pytest.mark.parametrize(("text", "message"), [("tensor=2", "cannot be divided; set tensor to 1"), ("context=2", "set context to 1")])
    def test_a_model_without_tokens_has_fewer_degrees(self, text: str, message: str) -> None:
        with pytest.raises(ConfigError, match=message):
            check_layout(parse_layout(text), perceptron(64, 4), 2)
        check_layout(parse_layout("shard=2"), perceptron(64, 4), 2)

    def test_training_accepts_what_is_enumerated(self) -> None:
        """By the checks of the config itself, for the model of conf/gpt2.yaml on eight workers."""
        model = parse_transformer("layers=12,width=768,heads=12,vocabulary=25600,sequence=1024")
        layouts = list(enumerate_layouts(model, 8, 8, 512))
        kinds = {(layout.tensor > 1, layout.pipeline > 1, layout.context > 1, layout.replicate > 1) for layout in layouts}
        assert len(kinds) > 8 and len(layouts) > 50
        for layout in layouts[::7]:
            for variant in list(more_passes(layout, model))[::3]:
                strategy = {
                    **{degree: getattr(variant, degree) for degree in ("replicate", "shard", "pipeline", "context", "tensor")},
                    "kind": "sharded",
                    "activation_checkpointing": variant.checkpointing,
                    "reduce_every_pass": variant.reduce_every_pass,
                    **({"schedule": variant.schedule, "microbatches": variant.parts} if variant.pipeline > 1 else {}),
                }
                changes = {"train.workers": 8, "train.shards": variant.readers, "train.grad_accum_steps": variant.accumulation}
                changes |= {"train.compile": variant.compile, "train.strategy": "ddp" if variant.full_copies else strategy}
                train = load(CONF / "gpt2.yaml", changes).train
                assert variant.global_batch == train.global_batch == 512


class TestStages:
    @pytest.mark.parametrize(("workers", "parts"), [(2, 2), (4, 8), (8, 32)])
    def test_1f1b_waits_for_its_share_of_the_turns(self, workers: int, parts: int) -> None:
        bubble = bubble_seconds("1F1B", workers, 1.0, 1.0, 1.0)
        assert isclose(bubble / (bubble + 3.0 * parts), (workers - 1) / (parts + workers - 1))
        assert isclose(bubble + 3.0 * parts, simulate_1f1b(workers, parts, 1.0, 2.0))

    def test_better_schedules_wait_less(self) -> None:
        waits = [bubble_seconds(name, 8, 1.0, 1.0, 1.0) for name in ("1F1B", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble")]
        assert waits == [21.0, 10.5, 3.5, 0.0]

    @pytest.mark.parametrize("schedule", ["1F1B", "Interleaved1F1B", "ZBVZeroBubble"])
    def test_stages_are_the_model(self, schedule: str) -> None:
        layout = parse_layout(f"pipeline=5,schedule={schedule},microbatch=5")
        counts = [sum(count for layer, count in share.layers if layer.role == "block") for share in worker_shares(LLAMA, layout)]
        assert max(counts) <= 32 / 5 + 2
        ends = [{layer.name for layer, _ in share.layers} for share in worker_shares(LLAMA, layout)]
        assert sum("output" in names for names in ends) == 1
        assert any({"embedding", "output"} <= names for names in ends) == (schedule == "ZBVZeroBubble")

    def test_the_first_stage_holds_as_many_microbatches_as_there_are_stages(self) -> None:
        assert microbatches_held(parse_layout("pipeline=4,microbatch=16,microbatches=16")) == 4
        assert microbatches_held(parse_layout("pipeline=4,microbatch=16,microbatches=16,schedule=Interleaved1F1B")) == 5.5


def simulate_1f1b(workers: int, parts: int, forward: float, backward: float) -> float:
    """The end of a pass whose operations start as soon as their input and their worker are there, in the order of 1F1B."""
    queues = []
    for worker in range(workers):
        warm_up = min(workers - worker - 1, parts)
        order = [("forward", part) for part in range(warm_up)]
        for part in range(parts - warm_up):
            order += [("forward", warm_up + part), ("backward", part)]
        queues.append(order + [("backward", part) for part in range(parts - warm_up, parts)])
    ends: dict[tuple[str, int, int], float] = {}
    free = [0.0] * workers
    while any(queues):
        for worker, queue in enumerate(queues):
            while queue:
                kind, part = queue[0]
                before = ("forward", worker - 1, part) if kind == "forward" else ("backward", worker + 1, part)
                is_first = worker == (0 if kind == "forward" else workers - 1)
                if not is_first and before not in ends:
                    break
                free[worker] = max(free[worker], 0.0 if is_first else ends[before]) + (forward if kind == "forward" else backward)
                ends[kind, worker, part] = free[worker]
                queue.pop(0)
    return max(ends.values())


class TestMemory:
    def test_state_is_divided_by_shards(self) -> None:
        states = [estimate_memory(LLAMA, replace(SHARDED, shard=shards)) for shards in (2, 4, 8)]
        for more, fewer in pairwise(states):
            assert isclose(more.parameters, 2 * fewer.parameters) and isclose(more.optimizer, 2 * fewer.optimizer)
        assert isclose(states[0].parameters + states[0].gradients + states[0].optimizer, 16 * LLAMA.parameters / 2)

    def test_what_saves_memory_saves_it(self) -> None:
        totals = [estimate_memory(LLAMA, replace(SHARDED, checkpointing=kind)).total for kind in ("none", "selective", "alternate", "full")]
        assert totals == sorted(totals, reverse=True) and totals[-1] < totals[0] * 0.8
        plain = estimate_memory(LLAMA, SHARDED).total
        assert estimate_memory(LLAMA, replace(SHARDED, reshard_after_forward=False)).total > plain
        assert estimate_memory(LLAMA, replace(SHARDED, offload=True)).total < plain
        assert estimate_memory(LLAMA, replace(SHARDED, shard=4, context=2)).total < plain
        assert estimate_memory(LLAMA, replace(SHARDED, shard=4, tensor=2)).activations < estimate_memory(LLAMA, SHARDED).activations
        late = replace(SHARDED, accumulation=2)
        assert estimate_memory(LLAMA, late).gradients > estimate_memory(LLAMA, replace(late, reduce_every_pass=True)).gradients

    def test_fp32_doubles_activations(self) -> None:
        wide = replace(SHARDED, precision="fp32")
        assert isclose(estimate_memory(LLAMA, wide).activations, 2 * estimate_memory(LLAMA, SHARDED).activations)
        assert convert_precision(LLAMA, 2) is LLAMA


class TestStepTime:
    def test_a_matrix_product_is_its_operations_and_its_traffic(self) -> None:
        rows, inputs, outputs = 4_096, 1_024, 2_048
        flops = 2 * rows * inputs * outputs / (989.4e12 * H100.achieved.matmul.fraction)
        traffic = 2 * (rows * inputs + inputs * outputs + rows * outputs) / (3.35e12 * 0.87)
        assert isclose(matmul_seconds(H100, "bf16", rows, inputs, outputs), flops + traffic)

    def test_the_fraction_of_the_peak_falls_for_small_products(self) -> None:
        fractions = [2 * width**3 / 989.4e12 / matmul_seconds(H100, "bf16", width, width, width) for width in (256, 1_024, 4_096, 16_384)]
        assert fractions == sorted(fractions) and fractions[0] < 0.6 * fractions[-1] < H100.achieved.matmul.fraction

    @pytest.mark.parametrize(
        "field", ["memory_bytes_per_second", "link_bytes_per_second", "network_bytes_per_second", "host_bytes_per_second"]
    )
    @pytest.mark.parametrize(
        "text",
        [
            "shard=16,microbatch=1",
            "replicate=2,shard=8,microbatch=1,offload=true",
            "shard=2,tensor=8,microbatch=1",
            "shard=2,pipeline=8,microbatch=8,schedule=Interleaved1F1B",
            "shard=2,context=8,microbatch=1,checkpointing=full",
            "replicate=16,full_copies=true,microbatch=1",
        ],
    )
    def test_more_bandwidth_is_never_slower(self, field: str, text: str) -> None:
        layout = parse_layout(text)
        faster = H100.model_copy(update={field: 2 * getattr(H100, field)})
        assert estimate_step(LLAMA, faster, layout).step_seconds <= estimate_step(LLAMA, H100, layout).step_seconds
        assert estimate_step(LLAMA, read_hardware("a100"), layout).step_seconds > estimate_step(LLAMA, H100, layout).step_seconds

    def test_parts_of_a_step_are_its_seconds(self) -> None:
        step = estimate_step(LLAMA, H100, replace(SHARDED, accumulation=4, checkpointing="full"))
        parts = step.compute_seconds + step.communication_seconds + step.bubble_seconds + step.optimizer_seconds + step.data_seconds
        assert isclose(step.step_seconds, parts)
        assert isclose(step.units_per_second, step.rows_per_second * 8_192)
        assert isclose(step.mfu, LLAMA.model_flops * 64 / step.step_seconds / (8 * 989.4e12))

    def test_recomputation_takes_time_and_compiled_kernels_save_it(self) -> None:
        seconds = [
            estimate_step(LLAMA, H100, replace(SHARDED, checkpointing=kind)).step_seconds
            for kind in ("none", "selective", "alternate", "full")
        ]
        assert seconds == sorted(seconds) and seconds[-1] < 1.4 * seconds[0]
        assert estimate_step(LLAMA, H100, replace(SHARDED, compile=True)).step_seconds < seconds[0]
        assert (
            estimate_step(LLAMA, H100, replace(SHARDED, float8=True)).matmul_seconds
            < 0.7 * estimate_step(LLAMA, H100, SHARDED).matmul_seconds
        )

    def test_a_slow_loader_is_waited_for(self) -> None:
        step = estimate_step(LLAMA, H100, SHARDED, MeasuredPasses(0.0, 0.1, 0.0, loader_rows_per_second=0.5))
        assert isclose(step.step_seconds, 2 / 0.5) and step.limit == "reading data"

    def test_measured_passes_take_the_place_of_the_roofline(self) -> None:
        """A worker with all layers takes what was measured, and half of them half of it."""
        measured = MeasuredPasses(constant_seconds=0.5, row_seconds=0.25, update_seconds=2.0)
        step = estimate_step(LLAMA, H100, ParallelLayout(microbatch=4, accumulation=3, full_copies=True), measured)
        assert isclose(step.compute_seconds, 3 * (0.5 + 4 * 0.25)) and isclose(step.optimizer_seconds, 2.0)
        halves = estimate_step(LLAMA, H100, parse_layout("pipeline=2,microbatch=8,microbatches=2"), measured)
        assert 0.4 < halves.compute_seconds / (2 * measured.pass_seconds(4)) < 0.65

    def test_a_perceptron_and_rows_that_are_no_tokens(self) -> None:
        model = perceptron(4_096, 6)
        step = estimate_step(model, H100, ParallelLayout(replicate=8, microbatch=8_192, full_copies=True))
        assert step.attention_seconds == 0 and isclose(step.units_per_second, step.rows_per_second)
        assert isclose(model.model_flops, 3 * 2 * 6 * 4_096**2)
        small = estimate_step(perceptron(32, 6), H100, ParallelLayout(microbatch=64, full_copies=True))
        assert small.compute_seconds >= 6 * 3 * 10 * H100.kernel_seconds * 0.999  # launches of kernels alone

    def test_compression_helps_a_slow_network(self) -> None:
        p100 = read_hardware("p100")
        plain = ParallelLayout(replicate=64, microbatch=8, full_copies=True, precision="fp32")
        model = perceptron(4_096, 6)
        steps = [estimate_step(model, p100, replace(plain, compression=kind)).step_seconds for kind in ("none", "bf16", "topk")]
        assert steps == sorted(steps, reverse=True) and steps[-1] < steps[0] / 4


class TestFailures:
    def test_the_best_interval_is_a_minimum(self) -> None:
        between, checkpoint, restart = failure_seconds(50_000, 16_384), 30.0, 600.0
        best = daly_interval(checkpoint, between)
        times = [completion_seconds(1e6, best * factor, checkpoint, restart, between) for factor in (0.8, 0.95, 1.0, 1.05, 1.25)]
        assert min(times) == times[2]
        young_1974 = (2 * checkpoint * between) ** 0.5  # where checkpoints are short
        assert isclose(young_1974, best, rel_tol=0.1)

    def test_without_failures_only_checkpoints_cost(self) -> None:
        assert isclose(completion_seconds(1_000, 100, 10, 300, inf), 1_100)
        assert estimate_failures(3_600, 1e9, 1).effective > 0.99
        assert completion_seconds(1_000, 1e9, 10, 300, 1.0) == inf

    def test_long_checkpoints_leave_the_time_between_failures(self) -> None:
        assert daly_interval(2_000, 1_000) == 1_000

    def test_llama_3_was_effective_for_more_than_nine_tenths(self) -> None:
        """54 days on 16,384 H100 with 419 unexpected interruptions."""
        run = estimate_failures(54 * 86_400, H100.devices_hours_between_failures, 16_384, 30)
        assert 400 < run.failures < 520 and 0.9 < run.effective < 0.98

    def test_more_devices_fail_more_often(self) -> None:
        effective = [estimate_failures(1e6, 50_000, devices).effective for devices in (8, 512, 16_384)]
        assert effective == sorted(effective, reverse=True)

    @pytest.mark.parametrize(("saves", "between", "restart"), [(5, 600, 20), (60, 3_600, 300), (300, 600, 60)])
    def test_most_of_the_time_is_work_at_the_best_interval(self, saves: float, between: float, restart: float) -> None:
        """Of an interval, the save is no work; after a failure, a restart and half of an interval are lost."""

        def available_share(interval: float) -> float:
            return (interval - saves) / interval * between / (between + restart + interval / 2)

        best = available_interval(saves, between, restart)
        shares = [available_share(best * factor) for factor in (0.8, 0.95, 1.0, 1.05, 1.25)]
        assert max(shares) == shares[2]

    def test_seconds_that_are_none_are_refused(self) -> None:
        with pytest.raises(ConfigError, match="set all of them above 0"):
            estimate_failures(0, 50_000, 8)
        assert estimate_failures(1, 50_000, 8).failures < 1e-3


class TestCandidates:
    JOB = TrainingJob(LLAMA, rows=1e5, global_batch=512)

    @pytest.fixture(scope="class")
    @classmethod
    def candidates(cls) -> list[PlanCandidate]:
        return find_candidates(cls.JOB, parse_clusters("h100x16,a100x32"))

    def test_all_fit_and_the_fastest_is_first(self, candidates: list[PlanCandidate]) -> None:
        hours = [candidate.expected_hours for candidate in candidates]
        assert hours == sorted(hours) and len({candidate.cluster.name for candidate in candidates}) == 2
        assert all(candidate.step.memory.total <= usable_bytes(candidate.cluster.hardware) for candidate in candidates)
        assert all(candidate.expected_hours > candidate.hours and candidate.layout.global_batch == 512 for candidate in candidates)

    def test_the_best_of_each_kind(self, candidates: list[PlanCandidate]) -> None:
        fastest, cheapest = candidates[0], min(candidates, key=lambda candidate: candidate.cost)
        job = replace(self.JOB, deadline_hours=1.2 * fastest.expected_hours, budget=1.1 * cheapest.cost)
        plans = {plan.kind: plan for plan in choose_plans(job, candidates)}
        assert plans["fastest"].candidate == fastest and plans["cheapest"].candidate.cost == cheapest.cost
        assert plans["cheapest within the deadline"].candidate.cost <= fastest.cost
        assert plans["fastest within the budget"].candidate.expected_hours <= cheapest.expected_hours
        assert all(plan.reason.endswith(".") for plan in plans.values())

    def test_what_is_short_is_named_and_more_of_it_helps(self, candidates: list[PlanCandidate]) -> None:
        fastest = candidates[0]
        with pytest.raises(
            ConfigError, match=r"no candidate ends within 0.1 hours: nearest is h100x16 .* lacks .* hours; raise the deadline"
        ):
            choose_plans(replace(self.JOB, deadline_hours=0.1), candidates)
        assert choose_plans(replace(self.JOB, deadline_hours=fastest.expected_hours), candidates)
        with pytest.raises(ConfigError, match=r"no candidate costs at most 1: .*; raise the budget, or lower the rows"):
            choose_plans(replace(self.JOB, budget=1), candidates)
        assert choose_plans(replace(self.JOB, budget=1e9), candidates)
        few = replace(self.JOB, rows=256, budget=1)
        assert choose_plans(few, find_candidates(few, parse_clusters("h100x16")))

    def test_a_model_that_fits_nowhere(self) -> None:
        large = TrainingJob(parse_transformer("llama3-70b"), 1e5, 512)
        with pytest.raises(ConfigError, match=r"llama3-70b fits on none of l4x8: nearest is .* which lacks .* GiB per device; add devices"):
            find_candidates(large, parse_clusters("l4x8"))
        assert find_candidates(large, parse_clusters("l4x128")) and find_candidates(large, parse_clusters("b200x8"))

    def test_a_batch_that_no_layout_divides(self) -> None:
        odd = TrainingJob(parse_transformer("gpt2,sequence=1022"), 1e5, 7)
        with pytest.raises(ConfigError, match="can be divided over no layout of h100x64; set it to a multiple of the devices"):
            find_candidates(odd, parse_clusters("h100x64"))
        assert find_candidates(replace(odd, global_batch=64), parse_clusters("h100x64"))

    def test_passes_that_no_number_of_workers_divides(self) -> None:
        passes = TrainingJob(parse_transformer("gpt2"), 1e5, 64, pass_rows=8)
        with pytest.raises(ConfigError, match="the 8 passes of a step can be divided over none of h100x3; choose a number of workers that"):
            find_candidates(passes, parse_clusters("h100x3"))
        assert find_candidates(passes, parse_clusters("h100x4"))

    def test_a_thousand_candidates_take_less_than_ten_seconds(self) -> None:
        start = process_time()
        candidates = find_candidates(TrainingJob(parse_transformer("llama3-70b"), 1e6, 512), parse_clusters("h200x64,h100x256"))
        assert len(candidates) > 1_000 and process_time() - start < 10

    def test_workers_share_the_shards_of_a_config(self) -> None:
        candidates = find_candidates(replace(self.JOB, shards=8), parse_clusters("h100x16"))
        assert {candidate.layout.readers for candidate in candidates} == {1, 2, 4, 8, 16}  # 16 of them need 16 shards
        assert all(candidate.layout.accumulation <= 512 // 8 for candidate in candidates)

    def test_passes_of_fixed_rows_are_shared(self) -> None:
        """A strategy whose sums do not depend on workers has one layout for each number of them that divides its passes."""
        job = replace(self.JOB, model=perceptron(256, 4), pass_rows=self.JOB.global_batch // 8)
        layouts = [candidate.layout for candidate in find_candidates(job, parse_clusters("h200x2,h200x4,h200x8,h200x16"))]
        assert {(layout.workers, layout.accumulation, layout.microbatch) for layout in layouts} == {
            (count, 8 // count, job.pass_rows) for count in (2, 4, 8)
        }
        assert all(layout.full_copies and layout.global_batch == job.global_batch for layout in layouts)

    def test_a_candidate_of_a_layout_of_ones_own(self) -> None:
        (cluster,) = parse_clusters("h100x8")
        candidate = evaluate(self.JOB, cluster, parse_layout("shard=8,microbatch=2,accumulation=32,checkpointing=full"))
        assert isclose(candidate.cost, candidate.expected_hours * 8 * 3.0)


def test_unequal_blocks_cost_what_each_of_them_costs() -> None:
    """As those of a U-Net, which all are blocks: together they take a measured pass."""
    blocks = tuple(Layer("block", 1, 1_000, (Matmul(1, 64, outputs),)) for outputs in (4_096, 64))
    model, layout = ModelCosts("unequal", blocks), ParallelLayout(microbatch=8)
    estimate = estimate_step(model, read_hardware("cpu2"), layout, MeasuredPasses(0.1, 0.0, 0.0, 1e9))
    assert estimate.compute_seconds == pytest.approx(0.1)
