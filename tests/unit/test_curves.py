"""Curves of a run, and the phases of its steps."""

from page_parts import render_parts

from pipelines.report.page_parts import phases, training_charts
from pipelines.tracking.history import History, Point


def run(**curves: list[tuple[int, float]]) -> History:
    points = {f"time/{name}": tuple(Point(step, 0.0, value) for step, value in values) for name, values in curves.items()}
    return History("0" * 32, "toy", "toys", "FINISHED", False, 0.0, 1.0, {}, {}, points)


def test_a_point_counts_as_much_as_the_steps_that_it_stands_for() -> None:
    """The first point is slow, since it compiles, and stands for 5 of 105 steps."""
    rows = phases(
        run(
            forward_seconds=[(5, 2.1), (105, 0.0)],
            forward_seconds_worst=[(5, 4.2), (105, 0.1)],
            forward_seconds_worst_rank=[(5, 1), (105, 0)],
            data_seconds=[(5, 0.2), (105, 0.2)],
        )
    )
    assert [(name, round(mean, 3)) for name, mean, _, _ in rows] == [("data", 0.2), ("forward", 0.1)]
    assert rows[1][2] is not None and abs(rows[1][2] - 31 / 105) < 1e-9 and rows[1][3] == "worker 0, in 95% of the steps"


def test_points_before_the_first_step_count_once() -> None:
    assert phases(run(data_seconds=[(0, 1.0), (0, 3.0)]))[0][1] == 2.0


def test_each_line_of_a_chart_of_workers_has_a_name() -> None:
    names = ("memory/peak_bytes", "memory/peak_bytes_worst", "train/loss")
    curves = {name: (Point(1, 0.0, 2.0), Point(2, 0.0, 3.0)) for name in names}
    history = History("0" * 32, "toy", "toys", "FINISHED", False, 0.0, 1.0, {}, {}, curves)
    charts = render_parts(*(chart.content for chart in training_charts({"": history})))
    assert "mean of workers" in charts and "worst worker" in charts
