"""Base class of all config sections: frozen, without unknown keys, documented field by field."""

import re
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, ValidationError, create_model, model_validator

from pipelines.config.messages.validation_errors import error_lines
from pipelines.errors import ConfigError

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


class Section(BaseModel):
    """Settings of one part of a pipeline. The string below a field is its documentation."""

    named_classes: ClassVar[Any] = None
    """Of a base class: the `kinds.Kinds` that finds the class of a section by a name in it."""
    model_config = ConfigDict(
        extra="forbid", frozen=True, use_attribute_docstrings=True, populate_by_name=True, validate_default=True, allow_inf_nan=False
    )

    if not TYPE_CHECKING:  # types of the arguments are those of the fields

        def __init__(self, **values: Any) -> None:
            """Raises ConfigError with a line for each setting that is wrong."""
            try:
                super().__init__(**values)
            except ValidationError as error:
                name = type(self).__name__
                raise ConfigError("\n".join(error_lines(error, type(self), values, name, frozenset()))) from error

        __init__.__pydantic_base_init__ = True  # pydantic calls it for no section within another, whose errors have a place there

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_truth_for_numbers(cls, values: Any, validate: ModelWrapValidatorHandler[Self]) -> Self:
        """Refuse what pydantic takes for 1 and 0: `yes`, `no`, `true` and `false` of YAML."""
        section = validate(values)
        truths = {name: value for name, value in values.items() if isinstance(value, bool)} if isinstance(values, dict) else {}
        for name, value in truths.items():
            setting = getattr(section, name, None)
            if isinstance(setting, int | float) and not isinstance(setting, bool):
                raise ValueError(f"{name} is {str(value).lower()}, but it is a number; write {setting:g} if that is meant")
        return section

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        """Join the lines of descriptions, which `--help` wraps itself."""
        for field in cls.model_fields.values():
            field.description = field.description and " ".join(field.description.split())


Extended = TypeVar("Extended", bound=BaseModel)


def extend(base: type[Extended], **fields: Any) -> type[Extended]:
    """The class with further or other fields, as `create_model` takes them. It has no text in which pydantic would have to look for their
    documentation, through every module of the process."""
    return create_model(base.__name__, __base__=base, __doc__=base.__doc__, __cls_kwargs__={"use_attribute_docstrings": False}, **fields)
