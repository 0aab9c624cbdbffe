"""Gates: what was found, what the config wants, and whether that holds."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipelines.config.registry import Registry
from pipelines.tasks.values import Value, in_words, value_of


@dataclass(frozen=True)
class Gate:
    """One condition of a promotion."""

    name: str
    holds: bool
    found: float | str | None
    wanted: str

    def __str__(self) -> str:
        return f"{self.name} is {_shown(self.found)}, and {self.wanted} is wanted"

    def plain(self) -> dict[str, Any]:
        return asdict(self)


def at_most(name: str, found: Value | None, bound: float, unit: str = "") -> Gate:
    """`found` may be the reason why it has no value: then the gate does not hold, nor does it if there is nothing."""
    return Gate(name, not isinstance(found, str | None) and found <= bound, recordable(found), f"at most {bound:g}{unit}")


def at_least(name: str, found: Value | None, bound: float) -> Gate:
    return Gate(name, not isinstance(found, str | None) and found >= bound, recordable(found), f"at least {bound:g}")


def recordable(found: Value | None) -> Value | None:
    """The value as a record has it, which is JSON: a text in place of an undefined number."""
    return in_words(found) if isinstance(found, str) else found


def equal(name: str, found: str, wanted: str) -> Gate:
    return Gate(name, found == wanted, found, wanted)


def bounds(settings: Registry, metrics: Mapping[str, float], reasons: Mapping[str, str] | None = None) -> list[Gate]:
    """The absolute bounds of test metrics; `metrics` are those of a run in MLflow, `reasons` say why others have no value."""
    values = {**(reasons or {}), **{name: value_of(number) for name, number in metrics.items()}}
    lower = [at_least(f"test/{name}", values.get(f"test/{name}"), bound) for name, bound in settings.at_least.items()]
    return lower + [at_most(f"test/{name}", values.get(f"test/{name}"), bound) for name, bound in settings.at_most.items()]


def _shown(found: float | str | None) -> str:
    if found is None:
        return "missing"
    return f"{found:.6g}" if isinstance(found, float) else str(found)
