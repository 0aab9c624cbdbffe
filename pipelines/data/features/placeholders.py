"""Encoders before they are fitted, as far as their settings decide them: enough to check a task before any row is read."""

from typing import Any

from pipelines.config.dataset import Dataset
from pipelines.config.plugins import is_class_path
from pipelines.data.features.encoding import implementation
from pipelines.data.versions.manifest import FittedEncoder

_STATE: dict[str, Any] = {
    "impute": None, "dtype": "float32", "mean": 0.0, "deviation": 1.0, "minimum": 0.0, "span": 1.0, "edges": [0.0], "points": [0.0, 1.0],
    "deviates": [0.0, 1.0], "values": ["a"], "words": ["a"], "characters": "a", "merges": [],
}  # fmt: skip
"""Every encoder's state, with the fewest values: the settings do not tell the sizes of vocabularies."""


def placeholder_encoders(dataset: Dataset, classes: int) -> dict[str, FittedEncoder] | None:
    """Encoders with the shapes and kinds of their columns, but made-up states, as if every label had so many `classes`.

    None if one of them is a user's own, whose state is unknown.
    """
    if any(is_class_path(settings.encoder) for settings in dataset.encoders.values()):
        return None
    encoders = {}
    for name, settings in dataset.encoders.items():
        names = ["false", "true"] if settings.encoder == "binary" else [str(number) for number in range(classes)]
        state = {**_STATE, "classes": names, "counts": [1] * len(names)}
        column = implementation(settings)(settings, state).column(name, dataset.column_role(name))
        encoders[name] = FittedEncoder(feature=settings.model_dump(mode="json"), inputs=settings.inputs(name), state=state, column=column)
    return encoders
