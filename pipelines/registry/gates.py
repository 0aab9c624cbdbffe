"""Gates: what was found, what the config wants, and whether that holds."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pipelines.config.registry import Registry


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


def at_most(name: str, found: float | None, bound: float, unit: str = "") -> Gate:
    return Gate(name, found is not None and found <= bound, found, f"at most {bound:g}{unit}")


def at_least(name: str, found: float | None, bound: float) -> Gate:
    return Gate(name, found is not None and found >= bound, found, f"at least {bound:g}")


def equal(name: str, found: str, wanted: str) -> Gate:
    return Gate(name, found == wanted, found, wanted)


def bounds(settings: Registry, metrics: Mapping[str, float]) -> list[Gate]:
    """The absolute bounds of test metrics; `metrics` are those of a run in MLflow."""
    lower = [at_least(f"test/{name}", metrics.get(f"test/{name}"), bound) for name, bound in settings.at_least.items()]
    return lower + [at_most(f"test/{name}", metrics.get(f"test/{name}"), bound) for name, bound in settings.at_most.items()]


def _shown(found: float | str | None) -> str:
    if found is None:
        return "missing"
    return f"{found:.6g}" if isinstance(found, float) else str(found)
