"""Details of classes (confusion, scores for curves, calibration, and what was wrong with most certainty), and of quantities: a sample of
predictions with their truth, in the units of the query.
"""

from typing import Any

import numpy as np
from torch import Tensor

from pipelines.config import TaskSettings
from pipelines.tasks.data import Batch, Data
from pipelines.tasks.details.base import Columns, Details
from pipelines.tasks.details.parts import Part, Scores, Thresholds
from pipelines.tasks.targets.base import Target
from pipelines.tasks.targets.classes import BinaryTarget, ClassificationTarget

MOST_CONFUSED = 100
"""Classes up to which all pairs are counted; with more, each class is counted by itself."""
MOST_CURVES = 20
"""Classes up to which scores are counted for each class."""
SCORE_BINS, SCORE_LIMIT = 512, 16.0
"""Bins of the score, equally wide between ± the limit: the logit of a class's probability. They are for splits with too many rows to
keep every score; what an area from them may be off by follows from the counts."""
CONFIDENCE_BINS = 15
_UNCALIBRATED = "uncalibrated_"


class ClassDetails(Details):
    """For binary targets, the curves and the calibration are those of the second class; for others, each class is compared with the
    rest, and calibration is that of the predicted class."""

    def __init__(self, settings: TaskSettings, data: Data, target: ClassificationTarget) -> None:
        super().__init__(settings, data)
        self.kind = "binary" if isinstance(target, BinaryTarget) else "classes"
        self._target, self.classes, self.scores = target, target.classes, Scores()
        self._sorted: tuple[int, list[tuple[str, Thresholds]]] | None = None
        """The number of scores that were sorted, and the thresholds: sorting millions takes a second, and two callers need it."""

    @property
    def parts(self) -> list[Part]:
        return [*super().parts, self.scores]

    def expect(self, rows: int) -> None:
        self.scores.expect(rows * len(self._curves()))

    def _curves(self) -> tuple[str, ...]:
        if self.kind == "binary":
            return tuple(self.classes[1:])
        return tuple(self.classes) if len(self.classes) <= MOST_CURVES else ()

    def update(self, output: Tensor, batch: Batch) -> None:
        output = output.double()
        true_tensor = batch[self.data.target.name].cpu()
        losses, true = self._target.losses(output, true_tensor).numpy(), true_tensor.numpy().astype(np.int64)
        probabilities, predicted = self._target.probabilities(output).numpy(), self._target.decide(output).numpy()
        if isinstance(self._target, BinaryTarget):
            decision = self._target.decision
            self._score(decision.calibrate(output).numpy(), true)
            self.scores.add(probabilities[:, 1:], true)
            if decision.is_calibrated:
                self._calibrate(output[:, 0].sigmoid().numpy(), true, _UNCALIBRATED)
        elif self._curves():
            self.scores.add(probabilities, true)
            with np.errstate(divide="ignore"):
                self._score(np.log(probabilities) - np.log1p(-probabilities), true)
        confidence = probabilities[np.arange(len(true)), predicted]
        count = len(self.classes)
        if count <= MOST_CONFUSED:
            self.sums.add("confusion", np.bincount(true * count + predicted, minlength=count * count).reshape(count, count))
        else:
            for name, values in (("true", true), ("predicted", predicted), ("correct", true[true == predicted])):
                self.sums.add(name, np.bincount(values, minlength=count))
        self._calibrate(probabilities[:, 1] if self.kind == "binary" else confidence, true if self.kind == "binary" else predicted == true)
        correct = (predicted == true).astype(np.float64)
        quantities, scores = {"correct": correct, "loss": losses}, {}
        if self.kind == "binary":
            scores = {"score": probabilities[:, 1], "positive": true}
            quantities |= {"positive": true.astype(np.float64), "predicted_positive": predicted.astype(np.float64)}
        self.slices.update(batch, quantities)
        self._offer(self.outcomes, batch, {"accuracy": correct, "loss": losses, **scores})
        names = np.array(self.classes, dtype=object)
        self._offer_worst(losses, batch, {"true": names[true], "predicted": names[predicted], "probability": confidence})

    def _score(self, logits: np.ndarray, true: np.ndarray) -> None:
        """Count the scores, shape (rows, curves), of rows that are of a class, and of those that are not: shape (2, curves, bins)."""
        curves = logits.shape[1]
        finite = np.nan_to_num(logits, nan=0.0).clip(-SCORE_LIMIT, SCORE_LIMIT)  # a probability of 1 has an infinite logit
        scaled = finite * (SCORE_BINS / (2 * SCORE_LIMIT)) + SCORE_BINS / 2
        bins = np.clip(scaled, 0, SCORE_BINS - 1).astype(np.int64)
        is_one = (true == 1)[:, None] if self.kind == "binary" else true[:, None] == np.arange(curves)
        places = ((~is_one) * curves + np.arange(curves)) * SCORE_BINS + bins
        counted = np.bincount(places.reshape(-1), minlength=2 * curves * SCORE_BINS)
        self.sums.add("scores", counted.reshape(2, curves, SCORE_BINS))

    def _calibrate(self, confidence: np.ndarray, happened: np.ndarray, prefix: str = "") -> None:
        bins = np.clip(np.nan_to_num(confidence) * CONFIDENCE_BINS, 0, CONFIDENCE_BINS - 1).astype(np.int64)
        self.sums.add(f"{prefix}confident_rows", np.bincount(bins, minlength=CONFIDENCE_BINS))
        for name, values in (("confidence", confidence), ("happened", happened.astype(np.float64))):
            self.sums.add(f"{prefix}{name}", np.bincount(bins, weights=values, minlength=CONFIDENCE_BINS))

    def _calibration_error(self, prefix: str) -> float:
        """Expected calibration error (Naeini, Cooper and Hauskrecht 2015): the mean over rows of |confidence − frequency| of their bin."""
        rows, confidence, happened = (self.sums.arrays[f"{prefix}{name}"] for name in ("confident_rows", "confidence", "happened"))
        return float(np.abs(confidence - happened).sum() / rows.sum())

    def tables(self) -> dict[str, Columns]:
        sums = self.sums.arrays
        tables: dict[str, Columns] = {"classes": self._class_table()}
        if "confusion" in sums:
            true, predicted = np.nonzero(sums["confusion"])
            names = {side: [self.classes[number] for number in numbers] for side, numbers in (("true", true), ("predicted", predicted))}
            tables["confusion"] = {**names, "rows": sums["confusion"][true, predicted].tolist()}
        if "scores" in sums:
            tables["scores"] = self._score_table()
        if "confident_rows" in sums:
            bins = np.flatnonzero(sums["confident_rows"])
            rows = sums["confident_rows"][bins]
            means = {name: (sums[name][bins] / rows).tolist() for name in ("confidence", "happened")}
            tables["calibration"] = {"rows": rows.tolist(), **means}
        return tables

    def _score_table(self) -> Columns:
        """Points of the curves; those of bins, if not all scores were kept."""
        if not self.scores.is_complete:
            counts, curves = self.sums.arrays["scores"], self._curves()
            filled = np.nonzero(counts.sum(0))
            return {
                "class": [curves[number] for number in filled[0]],
                "logit": ((filled[1] + 0.5) * (2 * SCORE_LIMIT / SCORE_BINS) - SCORE_LIMIT).tolist(),
                "rows_of_class": counts[0][filled].tolist(),
                "other_rows": counts[1][filled].tolist(),
            }
        table: dict[str, list[Any]] = {"class": [], "logit": [], "rows_of_class": [], "other_rows": []}
        for name, thresholds in self._thresholds():
            points = thresholds.thin()
            with np.errstate(divide="ignore"):
                logits = np.log(points.scores) - np.log1p(-points.scores)
            table["class"] += [name] * len(logits)
            table["logit"] += logits.tolist()
            table["rows_of_class"] += points.rows_of_class.tolist()
            table["other_rows"] += points.other_rows.tolist()
        return table

    def _thresholds(self) -> list[tuple[str, Thresholds]]:
        if self._sorted is None or self._sorted[0] != self.scores.count:
            scores, true = self.scores.collect()
            first = 1 if self.kind == "binary" else 0
            curves = [(name, Thresholds.from_rows(scores[:, place], true == first + place)) for place, name in enumerate(self._curves())]
            self._sorted = self.scores.count, curves
        return self._sorted[1]

    def _class_table(self) -> Columns:
        sums = self.sums.arrays
        if "confusion" in sums:
            counts = sums["confusion"]
            true, predicted, correct = counts.sum(1), counts.sum(0), counts.diagonal()
        elif "true" in sums:
            true, predicted, correct = sums["true"], sums["predicted"], sums["correct"]
        else:
            return {}
        return {"class": list(self.classes), "rows": true.tolist(), "predicted": predicted.tolist(), "correct": correct.tolist()}

    def summary(self) -> dict[str, Any]:
        by_class, sums = self._class_table(), self.sums.arrays
        summary_values = {"classes": list(self.classes), "target": self.data.target.name, "rows": sum(by_class.get("rows", []))}
        if self.scores.is_complete and self.scores.has_rows:
            summary_values["areas"] = [{"class": name, **thresholds.areas()} for name, thresholds in self._thresholds()]
        if isinstance(self._target, BinaryTarget) and (decision := self._target.decision).to_values() and "confident_rows" in sums:
            errors = {"error": self._calibration_error("")}
            errors |= {"error_before": self._calibration_error(_UNCALIBRATED)} if decision.is_calibrated else {}
            summary_values["decision"] = {**decision.to_values(), **errors}
        return summary_values


class QuantityDetails(Details):
    kind = "quantity"

    def __init__(self, settings: TaskSettings, data: Data, target: Target) -> None:
        super().__init__(settings, data)
        self._target = target

    def update(self, output: Tensor, batch: Batch) -> None:
        output, target = output.double(), batch[self.data.target.name].cpu()
        losses = self._target.losses(output, target).numpy()
        predicted, true = self._target.quantities(output).numpy(), self._target.raw(target).numpy()
        error = predicted - true
        self.sums.add("rows", np.array(len(true)))
        self.slices.update(batch, {"loss": losses, "error": error, "absolute": np.abs(error), "squared": error**2})
        self._offer(self.outcomes, batch, {"mse": error**2, "mae": np.abs(error), "loss": losses})
        self._offer(self.sample, batch, {"true": true, "predicted": predicted})
        self._offer_worst(losses, batch, {"true": true, "predicted": predicted})

    def tables(self) -> dict[str, Columns]:
        sample = self.sample.columns
        return {"sample": {"row": self.sample.rows.tolist(), **{name: values.tolist() for name, values in sample.items()}}}

    def summary(self) -> dict[str, Any]:
        return {"target": self.data.target.name, "rows": int(self.sums.arrays.get("rows", 0))}
