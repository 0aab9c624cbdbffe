"""Finds the class of settings that a name in a file stands for, without a list of them: `encoder: standardize`, `kind: trees`.

Each class says its own name, as the default of its field `encoder`, `kind` or `format`. Classes of this project stand in a package of the
core, or in the module `settings` of a slice (`slices`). Another package registers one by an entry point, such as `name = module:Class`
of the group `lockstep.encoders`. And a file may name any by its path, `module:Class`.
"""

import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from types import ModuleType
from typing import Annotated, Any, Generic, Literal, get_args, get_origin

from pydantic import AfterValidator, ValidationInfo, create_model

from pipelines.config.messages.validation_errors import show_value
from pipelines.config.messages.words import name_list, suggestion
from pipelines.config.plugins import Settings, import_settings, is_class_path
from pipelines.config.section import extend
from pipelines.config.slices import folders_with_settings, import_faults, package_folders, report_fault, slice_modules


class Kinds(Generic[Settings]):
    """The classes of one sort of settings, by name. Slices and other packages are imported once a name is none of the core's."""

    def __init__(self, base: type[Settings], tag: str, group: str, core: str, example: str, has_default: bool = False) -> None:
        """`tag` is the field with the name, `group` that of entry points, `core` the package of the core's classes. `example` is a name,
        and with `has_default` that of a section without one."""
        self.base, self.tag, self._group, self._core, self._example = base, tag, group, core, example
        self.default = example if has_default else ""
        self.recognize_otherwise: Callable[[Mapping[str, Any]], type[Settings] | None] | None = None
        """Finds the class of a section whose name is that of no class, such as `module:function` of a network."""
        # Each base is a Section.
        base.named_classes = self  # type: ignore[attr-defined]

    @cached_property
    def core_classes(self) -> dict[str, type[Settings]]:
        """The core's classes by name: of the modules of its package, or, if that has folders with settings, of theirs."""
        names = [f"{self._core}.{inner.name}" for inner in pkgutil.iter_modules(package_folders(self._core)) if not inner.ispkg]
        settings_modules = [f"{folder}.settings" for folder in folders_with_settings(self._core)]
        return dict(self._classes_in(import_module(name) for name in settings_modules or names))

    @cached_property
    def by_name(self) -> dict[str, type[Settings]]:
        """All classes by name, the core's first. Those that cannot be imported are left out, and so are names that two packages give."""
        return {**self.core_classes, **{name: classes[0] for name, classes in self._added_classes.items() if len(classes) == 1}}

    @cached_property
    def _added_classes(self) -> dict[str, list[type[Settings]]]:
        """The classes of slices, and those that other packages register, by name."""
        classes: dict[str, list[type[Settings]]] = {}
        for name, settings in self._classes_in(slice_modules("settings").values()):
            classes.setdefault(name, []).append(settings)
        for entry_point in entry_points(group=self._group):
            if registered := _load(entry_point, self.base):
                classes.setdefault(entry_point.name, []).append(registered)
        return classes

    def class_for(self, name: str) -> type[Settings]:
        """The class that a name or an import path stands for. Raises ValueError if there is none, or if two packages give the name."""
        if name in self.core_classes:
            return self.core_classes[name]
        if is_class_path(name):
            return _tag_class(import_settings(name, self.base, f"a settings class for {self.tag}"), self.tag, name)
        if name in self.by_name:
            return self.by_name[name]
        if name in self._added_classes:
            packages = " and ".join(settings.__module__ for settings in self._added_classes[name])
            raise ValueError(f"{self.tag} {name} is given by {packages}; uninstall one, or name one by its path, module:Class")
        rule = f"choose one of {name_list(self.by_name, name)}{', or module:Class of your own settings' if ':' in name else ''}"
        broken = "".join(f"; {place} cannot be imported: {reason}" for place, reason in import_faults().items())
        raise ValueError(f"no {self.tag} {show_value(name)!r}; {suggestion(name, self.by_name, rule)}{broken}")

    def package(self, settings: Settings) -> str:
        """The package that a section's class is of; empty for a class of the core, or one that is named by its import path."""
        name = getattr(settings, self.tag)
        return "" if name in self.core_classes or is_class_path(name) else type(settings).__module__.removesuffix(".settings")

    def expand(self, value: Any) -> Any:
        """The section for which a name alone is short, and which has a name in any case, if there is a default one."""
        if isinstance(value, str):
            return {self.tag: value}
        return {self.tag: self.default, **value} if self.default and isinstance(value, dict) else value

    def parse(self, value: Any, validation: ValidationInfo) -> Any:
        """The validator of a field that takes any of these settings: plain values become those of the class that they name."""
        section = self.expand(value)
        if not isinstance(section, dict):
            return section
        if self.tag not in section:
            raise ValueError(f"`{self.tag}` is missing; add it, such as {{{self.tag}: {self._example}}}")
        if not isinstance(name := section[self.tag], str):
            return section
        try:
            settings = self.section_class(section)
        except ValueError as error:
            self._refuse(name, str(error))
            raise  # never reached
        return settings.model_validate(section, context=validation.context)

    def section_class(self, section: Mapping[str, Any]) -> type[Settings]:
        """The class of a section of plain values. Raises ValueError as `class_for` does."""
        recognized = self.recognize_otherwise(section) if self.recognize_otherwise else None
        return recognized or self.class_for(str(section.get(self.tag, self.default)))

    def _refuse(self, name: str, fault: str) -> None:
        """Raise a ValidationError at the place of the name."""

        def refuse(_: str) -> str:
            raise ValueError(fault)

        field: Any = (Annotated[str, AfterValidator(refuse)], ...)
        create_model(self.base.__name__, **{self.tag: field}).model_validate({self.tag: name})

    def _classes_in(self, modules: Iterable[ModuleType]) -> Iterator[tuple[str, type[Settings]]]:
        """The classes that modules define, by each name that one has."""
        for module in modules:
            for settings in vars(module).values():
                if isinstance(settings, type) and issubclass(settings, self.base) and settings.__module__ == module.__name__:
                    field = settings.model_fields[self.tag]
                    if get_origin(field.annotation) is Literal:
                        yield from ((name, settings) for name in get_args(field.annotation))
                    elif isinstance(field.default, str):
                        yield field.default, settings


@cache
def _load(entry_point: EntryPoint, base: type[Settings]) -> type[Settings] | None:
    """The class of an entry point; None, with a warning, if it cannot be imported."""
    try:
        return import_settings(entry_point.value, base, f"a part of group {entry_point.group}")
    except ValueError as error:
        report_fault(f"{entry_point.group}: {entry_point.name}", str(error))
        return None


@cache
def _tag_class(settings: type[Settings], tag: str, path: str) -> type[Settings]:
    """The class whose name is its import path."""
    field: Any = {tag: (Literal[path], path)}
    return extend(settings, **field)
