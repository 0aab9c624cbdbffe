"""The page of a search: figures of its trials, the importance of settings, what was saved, and the winner beside the config. No Ray."""

import json
import random
from dataclasses import asdict, replace
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from mlflow import MlflowClient
from searches import CONFIG_PARAMS, SPACE, dimensions, sample_search
from stores import new_store

from pipelines.config.tuning import Dimension
from pipelines.errors import TrackingError
from pipelines.report.command import report_page
from pipelines.report.figures.canvas import UndefinedError
from pipelines.report.figures.searches import importance_bars, parallel_coordinates, score_axis, score_range, setting_axis, trial_curves
from pipelines.report.search_page import render_search
from pipelines.tracking.history import History
from pipelines.tracking.search_files import SearchFiles
from pipelines.tracking.search_run import SearchRun
from pipelines.tuning import importance
from pipelines.tuning.result_files import log_result, trial_importance
from pipelines.tuning.search_result import SearchResult

FIGURES = (parallel_coordinates, trial_curves, importance_bars)


@cache
def result() -> SearchResult:
    return sample_search(failed=(7, 12))


@cache
def files() -> SearchFiles:
    return search_files(result())


def search_files(ended: SearchResult) -> SearchFiles:
    """The files of the search, as JSON gives them back."""
    learnt = trial_importance(ended, dimensions())
    search = {**ended.values(), "jobs": [asdict(job) for job in ended.jobs], "importance": learnt and asdict(learnt)}
    return SearchFiles(ended.trials, json.loads(json.dumps(search)), {"tune": {"space": SPACE}})


HISTORY = History("abc", "toy search", "toy", "FINISHED", False, 0.0, 1.0, {"dataset.version": "v1"}, {}, {})


def lines(svg: bytes) -> list[str]:
    """The paths of the lines with the figure's own colours, in order."""
    return [path.attrib["d"] for path in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}path") if "d" in path.attrib]


@pytest.mark.parametrize("draw", FIGURES, ids=lambda draw: draw.__name__)
def test_a_figure_is_a_pure_function_of_the_files(draw: Any) -> None:
    svg, caption = draw(files())
    assert (svg, caption) == draw(search_files(sample_search(failed=(7, 12)))) and len(svg) < 100_000
    ElementTree.fromstring(svg)


def test_each_trial_with_a_score_has_a_line_across_all_settings() -> None:
    svg, caption = parallel_coordinates(files())
    across = [path for path in lines(svg) if path.count("L") == len(SPACE)]
    assert len(across) == 28 and "2 of 30 trials failed, and have no line" in caption
    text = svg.decode()
    assert all(f">{label}<" in text for label in ("lr", "dropout", "hidden", "auc", "[64]", "0.1", "0.0001", "0.0032"))
    assert "The winner is red, the config dashed." in caption


def test_curves_say_who_was_stopped_where() -> None:
    _, caption = trial_curves(files())
    stopped = [sum(trial.rung == rung for trial in result().trials) for rung in range(4)]
    expected = f"{stopped[0]} after 1, {stopped[1]} after 3, {stopped[2]} after 9 epochs; {stopped[3]} went to the end"
    assert expected in caption and sum(stopped) == 30


def test_of_a_search_where_lower_is_better_the_least_is_at_the_top() -> None:
    assert score_range([0.3, 0.1, 0.2], "min") == (0.3, 0.1) and score_range([0.3, 0.1, 0.2], "max") == (0.1, 0.3)
    axis = score_axis("loss", [0.1, 0.2, 0.3], "min")
    assert [axis.place(value) for value in (0.1, 0.3)] == [1, 0] and axis.ticks[-1] == (1.0, "0.1")
    least = search_files(sample_search(direction="min"))
    assert parallel_coordinates(least)[0] and trial_curves(least)[0]


def test_a_trial_that_diverged_does_not_flatten_the_others() -> None:
    scores = [0.5, 0.6, 0.7, 1e12]
    axis = score_axis("loss", scores, "min")
    assert axis.place(0.5) == 1 and axis.place(1e12) == 0 and 0.3 < axis.place(0.6) < 0.9
    assert score_axis("loss", [0.5, 0.5], "min").place(0.5) == 1, "and equal scores have an axis"


@pytest.mark.parametrize(
    ("dimension", "value", "place", "labels"),
    [
        ({"log": [1e-4, 1e-2]}, 1e-3, 0.5, ["0.0001", "0.001", "0.01"]),
        ({"uniform": [0, 0.5]}, 0.125, 0.25, ["0", "0.25", "0.5"]),
        ({"int": [1, 3]}, 2, 0.5, ["1", "2", "3"]),
        ({"int": [0, 100]}, 25, 0.25, ["0", "50", "100"]),
        ({"choice": [[8], [16, 16], True]}, [16, 16], 0.5, ["[8]", "[16,16]", "True"]),
        ({"choice": ["only"]}, "only", 0.0, ["only"]),
    ],
)
def test_a_setting_has_a_place_between_its_ends(dimension: dict[str, Any], value: Any, place: float, labels: list[str]) -> None:
    axis = setting_axis("task.setting", Dimension(**dimension))
    assert axis.place(value) == pytest.approx(place) and [label for _, label in axis.ticks] == labels
    assert axis.title == "setting"


def test_the_setting_that_decides_is_the_most_important() -> None:
    learnt = trial_importance(result(), dimensions())
    assert learnt is not None and (learnt.trials, learnt.epochs) == (28, 1) and learnt.explained > 0.5
    assert next(iter(learnt.settings)) == "train.lr"
    means = {name: mean for name, (mean, _) in learnt.settings.items()}
    assert means["train.lr"] > 5 * max(mean for name, mean in means.items() if name != "train.lr")
    assert abs(means["task.layers"]) < 0.05, "which decides nothing"


def test_importance_depends_neither_on_the_scale_of_scores_nor_on_which_is_better() -> None:
    trials = [(trial.params, trial.score) for trial in result().trials if trial.score is not None]
    learnt = importance.setting_importance(dimensions(), trials, 1)
    assert importance.setting_importance(dimensions(), [(params, 1e6 * score**3) for params, score in trials], 1) == learnt
    other = importance.setting_importance(dimensions(), [(params, -score) for params, score in trials], 1)
    assert learnt is not None and other is not None and next(iter(other.settings)) == next(iter(learnt.settings))


def test_scores_by_chance_are_said_to_explain_nothing() -> None:
    chance = random.Random(0)
    trials = [({**trial.params}, chance.random()) for trial in result().trials]
    learnt = importance.setting_importance(dimensions(), trials, 1)
    assert learnt is not None and learnt.explained < 0.2
    search = {**files().search, "importance": {**asdict(learnt), "explained": -0.1}}
    assert "so that this says nothing" in importance_bars(replace(files(), search=search))[1]


@pytest.mark.parametrize("count", [0, importance.LEAST_TRIALS - 1])
def test_of_few_trials_nothing_is_said(count: int) -> None:
    trials = [(trial.params, 0.01 * trial.number) for trial in result().trials[:count]]
    assert importance.setting_importance(dimensions(), trials, 1) is None
    assert importance.setting_importance(dimensions(), [(trial.params, 0.5) for trial in result().trials], 1) is None, "or if all are equal"
    with pytest.raises(UndefinedError, match="too few trials have a score"):
        importance_bars(replace(files(), search={**files().search, "importance": None}))


class PageText(HTMLParser):
    """The text of a page, and the tags that it opens and closes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.depth = "", 0
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.text += f" {data.strip()}" if data.strip() else ""


def test_the_page_compares_the_winner_with_the_config_and_says_what_was_saved() -> None:
    page = render_search(HISTORY, files(), {})
    text = PageText(page).text
    assert page.count("data:image/svg+xml") == 3 and "<script" not in page
    assert f"validation auc of the winner, trial {result().winner}" in text and "validation auc of the config, trial 1" in text
    assert "test auc of the winner with 2 fresh seeds" in text and "0.915 ± 0.0071" in text
    assert f"{result().saved_share:.0%}" in text and "360: each of the 30 trials to the end" in text
    assert "is better than the mean of fresh seeds by 0.006: it is the best of many" in text
    assert "0.0001 to 0.1, by orders of magnitude" in text and "[64], [256, 128], [512, 512]" in text
    assert text.count("train.lr is too high; lower it") == 2 and "conf/toy_tuned.yaml" in text
    assert str(CONFIG_PARAMS["train.lr"]) in text


def test_a_search_whose_trials_have_no_config_among_them_compares_none() -> None:
    page = render_search(HISTORY, search_files(replace(result(), begins_with_config=False)), {})
    assert "of the config, trial 1" not in page and "the config dashed" not in page and "The winner is red." in page


def test_a_search_of_one_trial_has_a_page() -> None:
    page = render_search(HISTORY, search_files(sample_search(trials=1)), {})
    assert "which is the config as it stood" in page and "There is no figure: too few trials have a score" in page


def test_markup_in_a_value_stays_text() -> None:
    trials = (replace(files().trials[0], error="<script>alert(1)</script>"), *files().trials[1:])
    page = render_search(HISTORY, replace(files(), trials=trials), {})
    assert "<script" not in page and "&lt;script&gt;" in page


def test_the_page_is_filed_with_the_run_and_the_command_makes_it_again(tmp_path: Path) -> None:
    uri = new_store(tmp_path)
    client = MlflowClient(uri)
    experiment = client.create_experiment("toys", artifact_location=(tmp_path / "artifacts").as_uri())
    run_id = client.create_run(experiment, tags={"mlflow.lockstep.kind": "search", "mlflow.runName": "toy search"}).info.run_id
    with pytest.raises(TrackingError, match=r"is a search without search\.json: it has not ended; run the same lockstep tune again"):
        report_page(uri, (run_id,))
    client.log_text(run_id, json.dumps({"tune": {"space": SPACE}}), "config.json")
    log_result(SearchRun(client, uri, run_id, experiment, is_resumed=False), result(), dimensions())
    assert {file.path for file in client.list_artifacts(run_id)} == {"config.json", "report.html", "search.json", "trials.json"}
    page = Path(client.download_artifacts(run_id, "report.html", str(tmp_path))).read_text()
    assert page == report_page(uri, (run_id,)) and "toy search" in page
    assert client.get_run(run_id).data.metrics["search/best_score"] == result().best.score


def test_the_dataset_of_the_page_is_that_of_the_winner_s_training(tmp_path: Path) -> None:
    """Its features may need another version than that of the search."""
    uri = new_store(tmp_path)
    client = MlflowClient(uri)
    experiment = client.create_experiment("toys", artifact_location=(tmp_path / "artifacts").as_uri())
    winner = client.create_run(experiment, tags={"dataset.version": "v2", "dataset.digest": "2" * 64}).info.run_id
    tags = {"mlflow.lockstep.kind": "search", "dataset.version": "v1", "dataset.digest": "1" * 64}
    run_id = client.create_run(experiment, tags=tags).info.run_id
    client.log_text(run_id, json.dumps({"tune": {"space": SPACE}}), "config.json")
    trials = tuple(replace(trial, run_id=winner) if trial.number == result().winner else trial for trial in result().trials)
    log_result(SearchRun(client, uri, run_id, experiment, is_resumed=False), replace(result(), trials=trials), dimensions())
    assert f"version v2, digest {'2' * 16}" in PageText(report_page(uri, (run_id,))).text
