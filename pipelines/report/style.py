"""Colours of all pages and figures.

They are those of Okabe and Ito (2008), "Color universal design". People with any common colour blindness tell them apart, and the first
ones also differ in grey print.
"""

INK, GREY, PALE, LINE = "#1b1b1f", "#5c5f66", "#f4f5f7", "#d5d8dd"
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, YELLOW, BLACK = (
    *("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#f0e442", "#000000"),
)
COLOURS = (BLUE, ORANGE, GREEN, RED, PURPLE, SKY, BLACK)
"""The colours of series, in this order; yellow is left out, since it is too pale for lines on white."""
SPLIT_COLOURS = {"train": BLUE, "validation": ORANGE, "test": GREEN}
