"""Base class of all config sections: frozen, without unknown keys, documented field by field."""

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

SHOWN_CHARACTERS = 80
Fraction = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, Field(min_length=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


def _check_name(value: str) -> str:
    if not re.fullmatch(r"\w[\w -]{0,99}", value):
        raise ValueError("a name has 1 to 100 letters, digits, spaces, _ and -, and no space or - first; choose another")
    return value


Name = Annotated[str, AfterValidator(_check_name)]
"""Name of a table or an expectation, which is used in SQL, in reasons of the quarantine, and in names of MLflow metrics."""


def expand_kind(value: Any) -> Any:
    """The section for which the name of a kind is short."""
    return {"kind": value} if isinstance(value, str) else value


def show_value(value: Any) -> str:
    """A value as YAML writes it, shortened to fit into one line."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    text = str(value)
    text = text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"
    return text if text and text.isprintable() else repr(text)


class Section(BaseModel):
    """Settings of one part of a pipeline. The string below a field is its documentation."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, populate_by_name=True, validate_default=True, allow_inf_nan=False
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Join the lines of descriptions, which `--help` wraps itself."""
        for field in cls.model_fields.values():
            field.description = field.description and " ".join(field.description.split())
