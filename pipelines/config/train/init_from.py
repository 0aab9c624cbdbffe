"""`train.init_from`: the weights that a training starts with. Imports no torch."""

import re
from pathlib import PurePath
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, BeforeValidator, SerializerFunctionWrapHandler, model_serializer, model_validator

from pipelines.config.section import Section

SAFETENSORS = ".safetensors"


def expand_run(value: Any) -> Any:
    """The section for which the ID of a run is short."""
    return {"run": value} if isinstance(value, str) else value


def _check_rules(rules: dict[str, str]) -> dict[str, str]:
    for pattern, replacement in rules.items():
        try:
            re.compile(pattern).sub(replacement, "")
        except (re.error, IndexError, OverflowError, RecursionError) as error:
            raise ValueError(f"{pattern} to {replacement!r} is no regular expression with its replacement: {error}; correct it") from error
    return rules


class InitFrom(Section):
    """Weights that a training starts with: of a run, of a file, or of a folder. The ID of a run alone is short for `run`."""

    short_for: ClassVar[str] = "run"
    """The setting that a text alone gives."""
    run: str = ""
    """ID of an MLflow run."""
    file: str = ""
    """Path or URI of a `.safetensors` file. Where it is does not matter for the identity of a run, its `digest` does."""
    folder: str = ""
    """Path or URI of a folder with model.safetensors, or with several such files and model.safetensors.index.json, as Hugging Face's
    libraries write them."""
    digest: str = ""
    """Digest of the weights in the file or folder, as runs log it for their model; others are refused. By default, a training notes that
    of the weights that are there."""
    strict: bool = True
    """Whether names and shapes must be the model's. With false, a training loads the tensors that fit, and says which do not."""
    rename: Annotated[dict[str, str], AfterValidator(_check_rules)] = {}
    """Beginnings of names, as regular expressions, with their replacements, such as `{"encoder\\\\.": ""}`. Of several that match a name,
    the first is applied."""

    @property
    def is_given(self) -> bool:
        return bool(self.origin)

    @property
    def origin(self) -> str:
        """The run, file or folder; empty for none."""
        return self.run or self.file or self.folder

    @property
    def is_short(self) -> bool:
        """Whether the ID of a run says it all."""
        return not (self.file or self.folder or self.rename) and self.strict

    @property
    def identity(self) -> Any:
        """Plain values of the settings that determine a model: of a file or folder the digest, wherever it is."""
        if self.is_short:
            return self.run
        source = {"run": self.run} if self.run else {"digest": self.digest}
        return {**source, "strict": self.strict, "rename": list(self.rename.items())}

    @model_validator(mode="after")
    def _has_one_source(self) -> "InitFrom":
        sources = {name: value for name in ("run", "file", "folder") if (value := getattr(self, name))}
        if len(sources) > 1:
            raise ValueError(f"{' and '.join(f'{name} is {value}' for name, value in sources.items())}; keep one of them")
        if not sources and (not self.strict or self.rename or self.digest):
            raise ValueError("names no weights; give it a run, a file or a folder")
        if self.digest and self.run:
            raise ValueError(f"digest is {self.digest[:12]}, but run is {self.run}, which has logged its own; remove digest")
        suffix = PurePath(self.file.partition("?")[0] if "://" in self.file else self.file).suffix  # a URI may have options
        if self.file and suffix != SAFETENSORS:
            raise ValueError(
                f"file is {self.file}, but only {SAFETENSORS} files are read, since a pickle can run any code; convert it where it is "
                "trusted, by safetensors.torch.save_file(torch.load(FILE, weights_only=True), NEW_FILE)"
            )
        return self

    @model_serializer(mode="wrap")
    def _shorten(self, serialize: SerializerFunctionWrapHandler) -> Any:
        """Write the short form where it says all, as every run has recorded it."""
        return self.run if self.is_short else serialize(self)


NamedInitFrom = Annotated[InitFrom, BeforeValidator(expand_run)]
