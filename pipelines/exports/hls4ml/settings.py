"""For FPGAs."""

import re

from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from pipelines.config.section import Section

PRECISION = re.compile(r"ap_(u?)fixed<\d+, *(-?\d+)(?:, *\w+)*>")
"""A fixed-point type of Vitis HLS: whether it is unsigned, and its bits before the point."""


class Settings(Section):
    """Target `hls4ml`, for FPGAs."""

    precisions: tuple[str, ...] = Field(default=("ap_fixed<8,4>", "ap_fixed<12,6>", "ap_fixed<16,6>"), min_length=1)
    """Types of weights and sums to compare, as Vitis HLS writes them; the last one is that of the artifact."""
    rows: PositiveInt = 500
    """Rows of the test split to compare: the simulation of a small CNN computes a few a second."""
    part: str = "xcu250-figd2104-2L-e"
    """The FPGA."""
    clock_ns: PositiveFloat = 5.0
    """Clock period in nanoseconds."""
    reuse: PositiveInt = 16
    """How often a multiplier is used for one row; a larger number needs fewer multipliers and more time."""

    @field_validator("precisions")
    @classmethod
    def _precisions_are_types(cls, precisions: tuple[str, ...]) -> tuple[str, ...]:
        if wrong := [precision for precision in precisions if not PRECISION.fullmatch(precision)]:
            raise ValueError(f"{wrong[0]} is no fixed-point type; write all bits and those before the point, such as ap_fixed<16,6>")
        return precisions
