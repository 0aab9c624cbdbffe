"""Gates: what was found, what the config wants, and whether that holds; and which were not checked, and why."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pipelines.config.registry import GateName, Registry
from pipelines.tasks.values import Value, in_words, value_of


@dataclass(frozen=True)
class Gate:
    """One condition of a promotion."""

    name: str
    holds: bool
    found: float | str | None
    wanted: str
    gate: str = ""
    """Which of the config's gates it belongs to."""

    def __str__(self) -> str:
        return f"{self.name} is {_shown(self.found)}, and {self.wanted} is wanted"

    def plain(self) -> dict[str, Any]:
        return asdict(self)


@dataclass
class Judgement:
    """All conditions that were checked, the gates that were not, and what else was measured."""

    checked: list[Gate] = field(default_factory=list)
    not_checked: dict[str, str] = field(default_factory=dict)
    """The reason, by gate: also of one that was checked in part, such as on some slices."""
    numbers: dict[str, Any] = field(default_factory=dict)

    def add(self, gate: GateName, conditions: Iterable[Gate], otherwise: str) -> None:
        """Add the conditions of a gate; `otherwise` says why it is not checked if there are none."""
        given = [replace(condition, gate=gate) for condition in conditions]
        self.checked += given
        if not given:
            self.not_checked[gate] = otherwise

    def failures(self, required: Iterable[str]) -> list[str]:
        """The conditions that do not hold, and the required gates that are not checked."""
        unchecked = [f"{gate} is required and not checked ({self.not_checked[gate]})" for gate in required if gate in self.not_checked]
        return [str(gate) for gate in self.checked if not gate.holds] + unchecked

    @property
    def held(self) -> list[str]:
        """The gates of which every condition was checked and holds."""
        others = {gate.gate for gate in self.checked if not gate.holds} | self.not_checked.keys()
        return [gate for gate in dict.fromkeys(gate.gate for gate in self.checked) if gate not in others]

    def __str__(self) -> str:
        held = f"held: {', '.join(self.held) or 'none'}"
        return f"{held}; not checked: {', '.join(f'{gate} ({why})' for gate, why in self.not_checked.items()) or 'none'}"

    def plain(self) -> dict[str, Any]:
        failed = sorted({gate.gate for gate in self.checked if not gate.holds})
        states = {"held": self.held, "failed": failed, "not_checked": self.not_checked}
        return {"gates": [gate.plain() for gate in self.checked], **states, "measured": self.numbers}


def turned_off(settings: Registry, no_rival: str | None) -> dict[str, str]:
    """Of the gates that need rows: those that would not be checked anyway, and why. `no_rival` says why there is no comparison."""
    reasons = {
        "champion": no_rival,
        "slices": None if settings.slices else "registry.slices is empty",
        "latency": "registry.latency_ms is not set" if settings.latency_ms is None else None,
    }
    return {gate: reason for gate, reason in reasons.items() if reason is not None}


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
