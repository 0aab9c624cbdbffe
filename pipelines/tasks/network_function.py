"""The task of a user's function: it takes the encoded columns, and returns a network."""

import linecache
import sys
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, overload

import torch
from torch import Tensor, nn

from pipelines.config.tasks.functions import FunctionSettings as Settings
from pipelines.config.tasks.functions import code_digest, module_text
from pipelines.data.versions.schema import TensorColumn
from pipelines.errors import ConfigError
from pipelines.tasks.supervised import Supervised
from pipelines.tasks.tabular import FeatureVector, vector_width

_ROWS = 2
_imports: dict[str, tuple[ModuleSpec | None, str]] = {}
"""Spec and SHA-256 of each function's module, as this process first saw that import; a reload makes another spec."""


class NetworkFunction(Supervised):
    settings: Settings

    def model(self) -> nn.Module:
        columns = NetworkColumns(self.data.features, self.outputs)
        network = load_function(self.settings)(columns, **self.settings.parameters)
        if not isinstance(network, nn.Module):
            raise ConfigError(f"task.kind is {self.settings.kind}, which returned {type(network).__name__}; return a torch.nn.Module")
        return network

    def check(self) -> None:
        """Make the network, and call it with two rows of zeros."""
        place = f"task.kind is {self.settings.kind}, whose network"
        columns = self.data.features
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                zeros = {column.name: torch.zeros((_ROWS, *column.shape), dtype=getattr(torch, column.dtype)) for column in columns}
                output = self.model().eval()(zeros)
        except ConfigError:
            raise
        except Exception as error:  # a user's function may raise anything
            reason = " ".join(str(error).split())
            raise ConfigError(f"{place} fails: {type(error).__name__}: {reason}; correct the function") from error
        shape = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
        if shape != (_ROWS, self.outputs):
            remedy = f"return (rows, {self.outputs}), as a last layer of width columns.outputs does"
            raise ConfigError(f"{place} gives {shape} for {_ROWS} rows; {remedy}")


class NetworkColumns(Sequence[TensorColumn]):
    """The features that a network gets, by name in its batch, and the number of outputs that it must have."""

    def __init__(self, features: tuple[TensorColumn, ...], outputs: int) -> None:
        self._features = features
        self.outputs = outputs
        """Width of the network's output: one for a number or for two classes, else the number of classes."""

    def __len__(self) -> int:
        return len(self._features)

    @overload
    def __getitem__(self, index: int) -> TensorColumn: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[TensorColumn, ...]: ...
    def __getitem__(self, index: int | slice) -> TensorColumn | tuple[TensorColumn, ...]:
        return self._features[index]

    @property
    def width(self) -> int:
        """Width of what `inputs` returns."""
        return vector_width(self._features)

    def inputs(self) -> nn.Module:
        """A first layer: all columns side by side, those of indices embedded, as float32 of shape (rows, `width`)."""
        return FeatureVector(self._features)


def load_function(settings: Settings) -> Callable[..., Any]:
    """The function that the settings name. Raises ConfigError if its code cannot be run, or is not that of the settings."""
    module, _, name = settings.kind.partition(":")
    try:
        loaded = _source_module(settings.source, settings.digest) if settings.source else import_module(module)
        function: Callable[..., Any] = getattr(loaded, name)
    except Exception as error:  # a user's module may raise anything
        reason = " ".join(str(error).split())
        raise ConfigError(f"task.kind is {settings.kind!r}, which fails: {type(error).__name__}: {reason}; correct its code") from error
    if not settings.source and _has_changed(loaded, settings.digest):
        raise ConfigError(
            f"task.kind is {settings.kind!r}, whose file has changed since this process imported it; restart the notebook's kernel, "
            "or import it again by importlib.reload"
        )
    return function


def _has_changed(module: ModuleType, digest: str) -> bool:
    """Whether an imported module is not that of the file with this SHA-256.

    A function in it, or in a class of it, has other code than the file has now, or the file was another one at the import."""
    file = getattr(module, "__file__", None) or ""
    if not file.endswith(".py") or not Path(file).exists():
        return False
    present = set(_inner_codes(compile(Path(file).read_bytes(), file, "exec")))  # several may have one name, as lambdas do
    members = [member for value in vars(module).values() for member in (value, *(vars(value).values() if isinstance(value, type) else ()))]
    codes = [member.__code__ for member in members if isinstance(member, FunctionType)]
    if any(code not in present for code in codes if code.co_filename == file):
        return True
    spec, first_digest = _imports.get(module.__name__, (None, ""))
    if not first_digest or spec is not module.__spec__:
        first_digest = code_digest(module_text(module.__name__))
        _imports[module.__name__] = module.__spec__, first_digest
    return first_digest != digest  # the file may have other constants by now


def _inner_codes(code: CodeType) -> Iterator[CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield inner
            yield from _inner_codes(inner)


def _source_module(source: str, digest: str) -> ModuleType:
    """The module that a text makes, once in a process; tracebacks show its lines."""
    name = f"lockstep_source_{digest[:12]}"
    if name not in sys.modules:
        module, file = ModuleType(name), f"<task.source {digest[:12]}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        sys.modules[name] = module  # data classes look their module up
        try:
            exec(compile(source, file, "exec"), vars(module))
        except BaseException:
            del sys.modules[name]
            raise
    return sys.modules[name]
