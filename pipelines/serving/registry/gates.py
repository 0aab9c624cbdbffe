"""Gates: a measured value, the config's condition, and whether that holds; and which gates were not checked, and why."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pipelines.config.serving import GateName, Registry
from pipelines.tasks.metrics.table import Value, format_value, to_value


@dataclass(frozen=True)
class Gate:
    """One condition of a promotion."""

    name: str
    holds: bool
    value: float | str | None
    condition: str
    gate: str = ""
    """Which of the config's gates it belongs to."""

    def __str__(self) -> str:
        return f"{self.name} is {_value_text(self.value)}, and {self.condition} is wanted"

    def record(self) -> dict[str, Any]:
        return {"name": self.name, "holds": self.holds, "found": self.value, "wanted": self.condition, "gate": self.gate}


@dataclass
class Judgement:
    """All conditions that were checked, the gates that were not, and other measurements."""

    conditions: list[Gate] = field(default_factory=list)
    not_checked: dict[str, str] = field(default_factory=dict)
    """The reason, by gate: also of one that was checked in part, such as on some slices."""
    numbers: dict[str, Any] = field(default_factory=dict)

    def add(self, gate: GateName, conditions: Iterable[Gate], otherwise: str) -> None:
        """Add the conditions of a gate; `otherwise` says why it is not checked if there are none."""
        labelled = [replace(condition, gate=gate) for condition in conditions]
        self.conditions += labelled
        if not labelled:
            self.not_checked[gate] = otherwise

    def failures(self, required: Iterable[str]) -> list[str]:
        """The conditions that do not hold, and the required gates that are not checked."""
        unchecked = [f"{gate} is required and not checked ({self.not_checked[gate]})" for gate in required if gate in self.not_checked]
        return [str(condition) for condition in self.conditions if not condition.holds] + unchecked

    @property
    def failed_gates(self) -> set[str]:
        return {condition.gate for condition in self.conditions if not condition.holds}

    @property
    def passed_gates(self) -> list[str]:
        """The gates of which every condition was checked and holds."""
        gates = dict.fromkeys(condition.gate for condition in self.conditions)
        return [gate for gate in gates if gate not in self.failed_gates | self.not_checked.keys()]

    def __str__(self) -> str:
        not_checked = ", ".join(f"{gate} ({why})" for gate, why in self.not_checked.items())
        return f"held: {', '.join(self.passed_gates) or 'none'}; not checked: {not_checked or 'none'}"

    def record(self) -> dict[str, Any]:
        states = {"held": self.passed_gates, "failed": sorted(self.failed_gates), "not_checked": self.not_checked}
        return {"gates": [condition.record() for condition in self.conditions], **states, "measured": self.numbers}


def skip_reasons(settings: Registry, no_rival: str | None) -> dict[str, str]:
    """The reasons for gates that need rows and would not be checked anyway, by gate. `no_rival` says why there is no comparison."""
    reasons = {
        "champion": no_rival,
        "slices": None if settings.slices else "registry.slices is empty",
        "latency": "registry.latency_ms is not set" if settings.latency_ms is None else None,
    }
    return {gate: reason for gate, reason in reasons.items() if reason is not None}


def at_most(name: str, value: Value | None, bound: float, unit: str = "") -> Gate:
    """A gate that does not hold without a value, or if `value` is the reason why there is none."""
    return Gate(name, not isinstance(value, str | None) and value <= bound, recordable(value), f"at most {bound:g}{unit}")


def at_least(name: str, value: Value | None, bound: float) -> Gate:
    return Gate(name, not isinstance(value, str | None) and value >= bound, recordable(value), f"at least {bound:g}")


def recordable(value: Value | None) -> Value | None:
    """The value as JSON can record it: a text in place of an undefined number."""
    return format_value(value) if isinstance(value, str) else value


def equal(name: str, value: str, expected: str) -> Gate:
    return Gate(name, value == expected, value, expected)


def bounds(settings: Registry, metrics: Mapping[str, float], reasons: Mapping[str, str] | None = None) -> list[Gate]:
    """The absolute bounds of test metrics; `metrics` are those of a run in MLflow, `reasons` say why others have no value."""
    values = {**(reasons or {}), **{name: to_value(number) for name, number in metrics.items()}}
    lower = [at_least(f"test/{name}", values.get(f"test/{name}"), bound) for name, bound in settings.at_least.items()]
    return lower + [at_most(f"test/{name}", values.get(f"test/{name}"), bound) for name, bound in settings.at_most.items()]


def _value_text(value: float | str | None) -> str:
    if value is None:
        return "missing"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
