"""`train.balance`: how shards are dealt to workers of unequal speed."""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, model_validator

from pipelines.config.section import Section


class BalanceSettings(Section):
    """How shards are dealt to workers. The rows of a step do not depend on it. The name of a kind alone is short for its defaults:
    `balance: auto`."""

    kind: Literal["equal", "auto"] = "auto"
    """`equal` numbers, or `auto` for numbers in proportion to the workers' measured speed, dealt anew when it changes."""
    leave_out: bool = False
    """For an elastic group: continue without the machine of a worker that stays slower than a third of the median."""

    @model_validator(mode="after")
    def _leaving_out_is_automatic(self) -> "BalanceSettings":
        if self.leave_out and self.kind == "equal":
            raise ValueError("leave_out is true, but kind is equal, which measures no worker's speed; remove kind, or leave_out")
        return self


def _expand_kind(value: Any) -> Any:
    return {"kind": value} if isinstance(value, str) else value


NamedBalance = Annotated[BalanceSettings, BeforeValidator(_expand_kind)]


def check_group(balance: BalanceSettings, min_workers: int, max_workers: int) -> None:
    """Raise ValueError if a machine is to be left out of a group with a fixed number of workers."""
    if balance.leave_out and min_workers == max_workers:
        raise ValueError(
            f"balance.leave_out is true, but workers is {max_workers}, a fixed number; set workers to a range such as "
            f"[1, {max_workers}], or remove leave_out"
        )
