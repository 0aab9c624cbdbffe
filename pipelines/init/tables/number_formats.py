"""Numbers with separators, signs and units in their texts: how they look, the SQL that makes them numbers, and the same for Arrow.

A form is a way to write the digits, of `STYLES`, and the marks of `UNITS` and `SCALES` that a column has around them; another way to write
numbers is another entry. The SQL takes off what is no digit and casts; a text that does not look so is NULL.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.sources.spark_sql import sql_text
from pipelines.init.tables.sql import escape_braces

MOST_WRONG = 0.01
"""Share of texts that a column of numbers may have: they are refused or NULL, and of refused rows a version may have 1 %."""
BLANKS = " \u00a0\u202f\u2009"
UNITS = ("$", "€", "£", "¥", "₹", "%", "USD", "EUR", "GBP", "CHF", "JPY", "INR", "CAD", "AUD")
"""What may stand before or behind a number, and is taken off."""
SCALES = {"k": ("e3", "thousands"), "K": ("e3", "thousands"), "M": ("e6", "millions"), "B": ("e9", "billions")}
"""Letters behind a number that multiply it."""
_LETTER = r"°\p{L}"
_NUMBER_AND_WORD = f"^[+−-]?[0-9][0-9.,'’{BLANKS}]*(?P<word>[{_LETTER}][{_LETTER}/²³]*)$"
"""A number and the word of its unit, such as 3.5 km/h; the word has no characters that expressions read otherwise."""
_CODE = r"[0-9]\p{Lu}$"
"""The end of a code such as 12D, which is no quantity."""
_MOST_WORDS = 5
"""Different words behind numbers that may be units; more are parts of addresses or codes."""
_MINUS = "−"
_APOSTROPHES = "'’"
DECIMAL_POINT, DECIMAL_COMMA = "decimal point", "decimal comma"
"""What a column says of the others of its table."""
_FIRST = 1_000
"""Texts that show whether a column may be one of numbers."""
_MARK = f"[{BLANKS}{_APOSTROPHES}{_MINUS}()+.,-]|{'|'.join(f'[{unit}]' if len(unit) == 1 else unit for unit in UNITS)}"
MAY_BE_A_NUMBER = f"^(?:{_MARK})*[0-9](?:[0-9]|{_MARK})*(?:[eE][+-]?[0-9]+|[{''.join(SCALES)}])?(?:{_MARK})*$"
_LEAST_OF_THREE_DIGITS = 45
"""Numbers with three digits behind each separator, beside whole ones below 1,000, from which on it divides thousands: of as many
decimals, one ends with a zero, which is not written, with a probability of 99 %."""
_LONGEST_QUANTITY = 9
"""Digits of texts of one length with blanks in them, from which on they are names, such as numbers of telephones."""
_WHOLE_IN_THREES = "(?:[1-9][0-9]{{0,2}}(?:{0}[0-9]{{3}})+|[0-9]+)"
_IN_COMMAS = "(?:[1-9][0-9]{0,2}(?:,[0-9]{2,3})*,[0-9]{3}|[0-9]+)"
"""India writes 12,34,567."""
_IN_BLANKS = _WHOLE_IN_THREES.format(f"[{BLANKS}]")


@dataclass(frozen=True)
class DigitStyle:
    """A way to write digits."""

    name: str
    look: str
    """An expression that Java and RE2 read alike."""
    removed: str = ""
    point: str = "."

    @property
    def decimals(self) -> str:
        """The mark before the decimals."""
        return DECIMAL_COMMA if self.point == "," else DECIMAL_POINT


POINT = DigitStyle("", "(?:[0-9]+[.]?[0-9]*|[.][0-9]+)")
COMMA = DigitStyle("", "(?:[0-9]+(?:,[0-9]+)?)", point=",")
THOUSANDS_COMMAS = DigitStyle("thousands commas", f"(?:{_IN_COMMAS}(?:[.][0-9]+)?)", ",")
THOUSANDS_POINTS = DigitStyle("thousands points", f"(?:{_WHOLE_IN_THREES.format('[.]')}(?:,[0-9]+)?)", ".", ",")
STYLES = (
    POINT,
    COMMA,
    THOUSANDS_COMMAS,
    THOUSANDS_POINTS,
    DigitStyle("blanks between thousands", f"(?:{_IN_BLANKS}(?:[.][0-9]+)?)", BLANKS),
    DigitStyle("blanks between thousands", f"(?:{_IN_BLANKS}(?:,[0-9]+)?)", BLANKS, ","),
    DigitStyle("apostrophes", f"(?:{_WHOLE_IN_THREES.format(f'[{_APOSTROPHES}]')}(?:[.][0-9]+)?)", _APOSTROPHES),
)
"""In this order, where several fit equally well."""


@dataclass(frozen=True)
class NumberForm:
    """How the numbers of a column are written: a style, and the marks that stand around them."""

    style: DigitStyle
    characters: frozenset[str]
    """All of the column."""
    units: tuple[str, ...] = ()
    scales: str = ""
    has_parentheses: bool = False
    has_last_sign: bool = False

    @cached_property
    def look(self) -> str:
        """An expression of a whole text that is such a number."""
        characters = "".join(unit for unit in self.units if len(unit) == 1) + self._blanks
        parts = [*([f"[{characters}]"] if characters else []), *(unit for unit in self.units if len(unit) > 1)]
        marks = f"{parts[0]}*" if len(parts) == 1 and characters else f"(?:{'|'.join(parts)})*" if parts else ""
        sign, scale = f"[+{self._minus}-]?", f"[{self.scales}]?" if self.scales else ""
        start = f"{marks}{sign}{marks}"
        end = f"{marks}{scale}{marks if scale else ''}{sign if self.has_last_sign else ''}"
        number = f"{start}{self.style.look.replace(BLANKS, self._blanks or ' ')}{end}"
        return f"^(?:{number}|{start}[(]{number}[)]{marks})$" if self.has_parentheses else f"^{number}$"

    @property
    def sql(self) -> str:
        """The number in Spark SQL, with {0} for the text; NULL of a text that is none."""
        look = escape_braces(sql_text(self.look))
        return f"CASE WHEN {{0}} RLIKE {look} THEN {self.cast} END"

    @property
    def cast(self) -> str:
        """The number in Spark SQL of a text that is one."""
        text = "{0}"
        words, characters, new_characters = self._replaced
        for old, new in words:
            text = f"replace({text}, {sql_text(old)}, {sql_text(new)})"
        if characters:
            function = "replace" if len(characters) == 1 else "translate"
            text = f"{function}({text}, {sql_text(characters)}, {sql_text(new_characters)})"
        if self._is_negative_by_place:
            text = f"concat(IF({{0}} RLIKE '{self._negative}', '-', ''), {text})"
        return f"try_cast({text} AS double)"

    def numbers(self, texts: pa.Array) -> pa.Array:
        """Values that the SQL makes of texts, as float64."""
        is_number = pc.match_substring_regex(texts, self.look)
        values = pc.if_else(is_number, texts, pa.scalar(None, texts.type))
        is_negative = pc.match_substring_regex(values, self._negative)
        words, characters, new_characters = self._replaced
        for old, new in words:
            values = pc.replace_substring(values, old, new)
        for place, old in reversed(list(enumerate(characters))):  # those first that are taken off
            values = pc.replace_substring(values, old, new_characters[place : place + 1])
        numbers = values.cast(pa.float64())
        return pc.if_else(is_negative, pc.negate(numbers), numbers) if self._is_negative_by_place else numbers

    @property
    def difference(self) -> str:
        """How it differs from a plain number, for a reader; empty if it does not."""
        without = [part for part in (*sorted(self.units, key=len), self.style.name) if part]
        parts = [f" without {' and '.join(without)}"] if without else []
        parts += [", with a decimal comma"] if self.style.point == "," else []
        parts += [f", {letter} for {name}" for letter, (_, name) in SCALES.items() if letter in self.scales]
        parts += [", negative in parentheses"] if self.has_parentheses else []
        parts += [", negative before a minus"] if self.has_last_sign else []
        parts += [f", with the minus {_MINUS}"] if self._minus else []
        return "".join(parts)

    @property
    def is_plain(self) -> bool:
        """Whether Spark reads such numbers by itself."""
        return self.style is POINT and not (self.difference or self._minus or self._blanks)

    @property
    def _is_negative_by_place(self) -> bool:
        return self.has_parentheses or self.has_last_sign

    @property
    def _negative(self) -> str:
        """An expression of the mark of a negative number."""
        return f"[{'(' if self.has_parentheses else ''}{self._minus}-]"

    @property
    def _blanks(self) -> str:
        return self._present(BLANKS)

    @property
    def _minus(self) -> str:
        return self._present(_MINUS)

    def _present(self, marks: str) -> str:
        return "".join(mark for mark in marks if mark in self.characters)

    @cached_property
    def _replaced(self) -> tuple[list[tuple[str, str]], str, str]:
        """Words, and what stands in their place; then characters, and those in theirs; the last ones have none and are taken off."""
        words = [*((unit, "") for unit in self.units if len(unit) > 1), *((letter, SCALES[letter][0]) for letter in self.scales)]
        new = {",": "."} if self.style.point == "," else {}
        if self._minus and not self._is_negative_by_place:
            new[_MINUS] = "-"
        signs = f"(){_MINUS}+-" if self._is_negative_by_place else ""
        removed = self._present(f"{self.style.removed}{''.join(unit for unit in self.units if len(unit) == 1)}{signs}{BLANKS}")
        return words, "".join(dict.fromkeys([*new, *removed])), "".join(new.values())


@dataclass(frozen=True)
class NumberReading:
    """How a column of texts is read as numbers."""

    form: NumberForm
    decides: str = ""
    """DECIMAL_POINT or DECIMAL_COMMA, if the texts show it."""
    other: NumberForm | None = None
    """How the texts may be read as well: what divides thousands may also begin the decimals."""
    reason: str = ""
    """Why they are not read so."""
    wrong: int = 0
    """Texts that are no such number."""


def read_numbers(filled: pa.Array, hints: Collection[str] = ()) -> NumberReading | None:
    """How nearly all of the texts are numbers; None if they are none. `hints` are what other columns decide."""
    first = filled.slice(0, _FIRST)
    words = find_unit_words(filled)
    is_one_unit = len(words) == 1 or (len(words) == 2 and words[0] == f"{words[1]}s")
    if not len(filled) or not (is_one_unit or share_of_looks(first, MAY_BE_A_NUMBER) >= 0.9):
        return None
    if find_mixed_units(filled):
        return None
    forms = [form for form in _possible_forms(filled, words) if share_of_looks(first, form.look) >= 0.98]
    shares = {form: share_of_looks(filled, form.look) for form in forms}
    best = max(shares.values(), default=0.0)
    if best < 1 - MOST_WRONG or share_of_looks(filled, "^[^0-9]*0[0-9]") > MOST_WRONG:
        return None
    near = {form.style: form for form, share in shares.items() if share >= 1 - MOST_WRONG}
    wrong = {form.style: len(filled) - round(share * len(filled)) for form, share in shares.items()}
    for decimal, thousands, weigh in ((COMMA, THOUSANDS_COMMAS, _weigh_comma), (POINT, THOUSANDS_POINTS, _weigh_point)):
        if decimal in near and thousands in near:
            reading = weigh(filled, near[decimal], near[thousands], wrong[decimal] - wrong[thousands], hints)
            return replace(reading, wrong=wrong[reading.form.style])
    form = next(form for form, share in shares.items() if share == best)
    lengths = pc.unique(pc.utf8_length(first)).to_pylist()
    if form.style.removed == BLANKS and len(lengths) == 1 and lengths[0] > _LONGEST_QUANTITY:
        return None
    shows_decimals = bool(form.characters & {".", ","})
    return NumberReading(form, form.style.decimals if shows_decimals else "", wrong=wrong[form.style])


def find_unit_words(filled: pa.Array) -> list[str]:
    """The few words that stand behind nearly all of the texts' numbers, the longest first, such as kg; none, if money or thousands do."""
    are_marked = share_of_looks(filled.slice(0, _FIRST), MAY_BE_A_NUMBER) >= 0.9
    if are_marked or share_of_looks(filled, _NUMBER_AND_WORD) < 1 - MOST_WRONG or share_of_looks(filled, _CODE) > MOST_WRONG:
        return []
    counts = pc.value_counts(pc.struct_field(pc.extract_regex(filled, _NUMBER_AND_WORD), "word").drop_null()).to_pylist()
    frequent = {count["values"]: count["counts"] for count in counts if count["counts"] > MOST_WRONG * len(filled)}
    are_all = len(frequent) <= _MOST_WORDS and sum(frequent.values()) >= (1 - MOST_WRONG) * len(filled)
    return sorted(frequent, key=lambda word: (-len(word), word)) if are_all else []


def find_mixed_units(filled: pa.Array) -> list[str]:
    """Units of which some texts have one and others another, such as $ and €, or % alone, if other numbers have none; mostly no units."""
    units = [unit for unit in UNITS if pc.any(pc.match_substring(filled.slice(0, _FIRST), unit)).as_py()]
    has_unit = {unit: pc.match_substring(filled, unit).to_numpy(zero_copy_only=False) for unit in units}
    together = [{unit, other} for unit in units for other in units if unit < other and not np.any(has_unit[unit] & has_unit[other])]
    if together:
        return [unit for unit in units if any(unit in pair for pair in together)]
    is_mixed = "%" in units and share_of_looks(filled.filter(pa.array(~has_unit["%"])), "[1-9]") > 0  # as much without %: 0
    return ["%"] if is_mixed else []


def share_of_looks(filled: pa.Array, pattern: str) -> float:
    """The share of the texts that match; 0 if none of the first thousand does."""
    first = pc.match_substring_regex(filled.slice(0, _FIRST), pattern)
    if not pc.any(first).as_py():
        return 0.0
    return float(np.mean(pc.match_substring_regex(filled, pattern).to_numpy(zero_copy_only=False)))


def _possible_forms(filled: pa.Array, words: Sequence[str]) -> list[NumberForm]:
    """The forms that the texts may have, whose numbers have one of these words behind them, if there are any: by the characters of the
    first texts, and of those that have more than digits, points and commas."""
    first = filled.slice(0, _FIRST)
    marked = filled.filter(pc.match_substring_regex(filled, "[^0-9.,]")).slice(0, 100 * _FIRST)
    characters = frozenset("".join(pc.unique(first).to_pylist() + pc.unique(marked).to_pylist()))
    units = tuple(words) or tuple(unit for unit in UNITS if set(unit) <= characters and pc.any(pc.match_substring(first, unit)).as_py())
    letters = "" if words else "".join(SCALES)
    scales = "".join(letter for letter in letters if letter in characters and share_of_looks(first, f"[0-9][{BLANKS}]?{letter}") > 0)
    last_sign = share_of_looks(first, f"[0-9][^0-9]*[+{_MINUS}-]$") > 0
    return [
        NumberForm(style, characters, units, scales, {"(", ")"} <= characters, last_sign)
        for style in STYLES
        if style is POINT or characters & set(style.removed) or (style.point in characters and not style.removed)
    ]


def _weigh_comma(filled: pa.Array, decimal: NumberForm, thousands: NumberForm, lead: int, hints: Collection[str]) -> NumberReading:
    """Texts of which nearly all have three digits behind each comma: thousands beside whole numbers below 1,000, as 800 beside 2,501.
    `lead` is how many more of them are thousands than decimals."""
    has_comma = pc.match_substring(filled, ",")
    whole_numbers, marked = filled.filter(pc.invert(has_comma)), pc.sum(has_comma).as_py()
    if lead:
        return NumberReading(decimal if lead < 0 and marked < _LEAST_OF_THREE_DIGITS else thousands)
    if (DECIMAL_COMMA in hints) != (DECIMAL_POINT in hints):
        form, other = (decimal, thousands) if DECIMAL_COMMA in hints else (thousands, decimal)
        return NumberReading(form, other=other, reason=f"as other columns have a {form.style.decimals}")
    if not len(whole_numbers) or share_of_looks(whole_numbers, "[0-9]{4}") > MOST_WRONG:
        return NumberReading(thousands, other=decimal, reason="as three digits stand behind every comma")
    return NumberReading(thousands, DECIMAL_POINT)


def _weigh_point(filled: pa.Array, decimal: NumberForm, thousands: NumberForm, lead: int, hints: Collection[str]) -> NumberReading:
    """Texts of which nearly all have three digits behind each point, which are decimals unless other columns or many whole numbers say
    more. `lead` is how many more of them are thousands than decimals."""
    has_point = pc.match_substring(filled, ".")
    whole_numbers, pointed = filled.filter(pc.invert(has_point)), filled.filter(has_point)
    if not len(pointed) or lead > 0:
        return NumberReading(thousands if lead > 0 else decimal)
    if not lead and DECIMAL_COMMA in hints and DECIMAL_POINT not in hints:
        return NumberReading(thousands, other=decimal, reason="as other columns have a decimal comma")
    if not len(whole_numbers) or share_of_looks(whole_numbers, "[0-9]{4}") > MOST_WRONG or DECIMAL_POINT in hints:
        return NumberReading(decimal, other=thousands)
    ends_with_zero = not lead and share_of_looks(pointed, "0[^0-9]*$") > 0
    if len(pointed) >= _LEAST_OF_THREE_DIGITS or ends_with_zero:
        return NumberReading(thousands, DECIMAL_COMMA)
    return NumberReading(decimal, other=thousands, reason="" if lead else "as few numbers have three digits behind a point")
