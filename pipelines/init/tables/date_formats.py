"""Dates and times in texts: how they look, the SQL that makes them moments, and the same for Arrow.

A form is a pattern of Spark, whose letters have a look each in `_LETTERS`; another way to write dates is another pattern in `_DATES`. What
ISO 8601 writes has no pattern, since Spark reads it by its type.
"""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipelines.data.sources.spark_sql import sql_text
from pipelines.init.tables.number_formats import MOST_WRONG, share_of_looks
from pipelines.init.tables.sql import escape_braces

DAY_FIRST, MONTH_FIRST = "day before month", "month before day"
"""What a column says of the others of its table."""
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December")
_LETTERS = {
    "yyyy": "(?P<year>[0-9]{4})",
    "yy": "(?P<year>[0-9]{2})",
    "MM": "(?P<month>0[1-9]|1[0-2])",
    "M": "(?P<month>0?[1-9]|1[0-2])",
    "MMM": f"(?P<name>(?i:{'|'.join(name[:3] for name in _MONTHS)}))",
    "MMMM": f"(?P<name>(?i:{'|'.join(_MONTHS)}))",
    "dd": "(?P<day>0[1-9]|[12][0-9]|3[01])",
    "d": "(?P<day>0?[1-9]|[12][0-9]|3[01])",
    "HH": "(?P<hour>[01][0-9]|2[0-3])",
    "H": "(?P<hour>[01]?[0-9]|2[0-3])",
    "hh": "(?P<hour>0[1-9]|1[0-2])",
    "h": "(?P<hour>0?[1-9]|1[0-2])",
    "mm": "(?P<minute>[0-5][0-9])",
    "ss": "(?P<second>[0-5][0-9])",
    "SSS": "(?P<fraction>[0-9]{1,3})",
    "a": "(?P<half>(?i:AM|PM))",
    "XXX": "(?P<zone>Z|[+-][0-9]{2}:[0-9]{2})",
    "Z": "(?P<zone>[+-][0-9]{4})",
}
_DATES = (
    "yyyy/MM/dd", "yyyy.MM.dd", "dd/MM/yyyy", "MM/dd/yyyy", "dd.MM.yyyy", "dd-MM-yyyy", "MM-dd-yyyy", "dd/MM/yy", "MM/dd/yy", "dd.MM.yy",
    "dd MMM yyyy", "dd-MMM-yyyy", "dd-MMM-yy", "dd/MMM/yyyy", "dd MMMM yyyy", "dd. MMMM yyyy", "MMM dd, yyyy", "MMM dd yyyy",
    "MMM-dd-yyyy", "MMM/dd/yyyy", "MMMM dd, yyyy", "MMMM dd yyyy", "yyyy-MMM-dd", "yyyy MMM dd", "yyyyMMdd", "dd-MM-yy", "MM-dd-yy",
    "yy/MM/dd", "yy-MM-dd", "yy.MM.dd",
)  # fmt: skip
_TIMES = (
    "", " HH:mm", " HH:mm:ss", " HH:mm:ss.SSS", " hh:mm a", " hh:mm:ss a", " hh:mma", "'T'HH:mm", "'T'HH:mm:ss", "'T'HHmmss", " HHmmss",
)  # fmt: skip
_MONTHS_OF_YEARS = ("yyyy-MM", "yyyy/MM", "MM/yyyy", "MM-yyyy", "MMM yyyy", "MMM-yyyy", "MMMM yyyy", "yyyy MMM", "yyyy-MMM")
_FURTHER = (
    "yyyy-MM-dd'T'HH:mmXXX", "yyyy-MM-dd hh:mm a", "yyyy-MM-dd hh:mm:ss a", "'['dd/MMM/yyyy:HH:mm:ss Z']'", "dd/MMM/yyyy:HH:mm:ss Z",
    "dd MMM yyyy HH:mm:ss Z", "EEE, dd MMM yyyy HH:mm:ss Z", "EEE, dd MMM yyyy HH:mm:ss 'GMT'", "EEE MMM dd HH:mm:ss yyyy",
)  # fmt: skip
"""ISO 8601 and others, as logs of web servers, mails and `ctime` write them."""
_WEEKDAY = "^(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? +"
"""What Spark's patterns can write, but not read: it is taken off."""
_ISO_DATE = "^(?P<year>[0-9]{4})-(?P<month>[01]?[0-9])-(?P<day>[0-3]?[0-9])$"
_ISO_TIME = (
    "^(?P<year>[0-9]{4})-(?P<month>[01][0-9])-(?P<day>[0-3][0-9])[ T](?P<hour>[0-2][0-9]):(?P<minute>[0-5][0-9])"
    "(?::(?P<second>[0-5][0-9])(?:[.](?P<fraction>[0-9]{1,9}))?(?P<zone> ?(?:Z|UTC|GMT|[+-][0-9]{2}(?::?[0-9]{2})?))?)?$"
)
_QUARTERS = {
    "^(?P<year>[0-9]{4})[ -]?Q(?P<quarter>[1-4])$": ("left({0}, 4)", "right({0}, 1)"),
    "^Q(?P<quarter>[1-4])[ -](?P<year>[0-9]{4})$": ("right({0}, 4)", "substring({0}, 2, 1)"),
}
"""The year and the quarter in SQL, by their look."""
_YEAR, _CLOCK = r"\b(?:19|20)[0-9]{2}\b", r"\b[0-9]{1,2}:[0-9]{2}\b"
_LIKE_A_MOMENT = (
    rf"{_YEAR}.*{_CLOCK}|{_CLOCK}.*{_YEAR}|{_YEAR}[-/.][0-9]{{1,2}}[-/.][0-9]{{1,2}}\b|\b[0-9]{{1,2}}[-/.][0-9]{{1,2}}[-/.]{_YEAR}"
)
_FIRST = 1_000
_FIRST_DISTINCT = 20
"""Texts, and different ones among them, that show which patterns a column may have."""


@dataclass(frozen=True)
class MomentForm:
    """How the moments of a column are written."""

    look: str
    pattern: str = ""
    """Of Spark; empty if the type alone reads them, and for quarters."""

    @property
    def is_date(self) -> bool:
        return "<hour>" not in self.look

    def has_zones(self, texts: pa.Array) -> bool:
        """Whether one of the texts has an offset from UTC, or says that it is in UTC."""
        if "<zone>" not in self.look:
            return False
        zones = pc.struct_field(pc.extract_regex(texts, self.look), "zone")
        return bool(pc.any(pc.not_equal(zones, "")).as_py())

    @property
    def has_short_years(self) -> bool:
        return "yy" in self.pattern and "yyyy" not in self.pattern

    @property
    def sql(self) -> str:
        """The moment in Spark SQL, with {0} for the text; empty if the type alone reads it."""
        if self.look in _QUARTERS:
            look = escape_braces(sql_text(re.sub(r"\?P<[a-z]+>", "", self.look)))
            year, quarter = _QUARTERS[self.look]
            return f"CASE WHEN {{0}} RLIKE {look} THEN make_date(CAST({year} AS int), 3 * CAST({quarter} AS int) - 2, 1) END"
        if self.pattern.startswith("EEE"):  # blanks stand twice before days of one digit
            pattern = self.pattern.removeprefix("EEE").lstrip(", ")
            return f"try_to_timestamp(regexp_replace(regexp_replace({{0}}, '{_WEEKDAY}', ''), ' +', ' '), {sql_text(pattern)})"
        return f"{'try_to_date' if self.is_date else 'try_to_timestamp'}({{0}}, {sql_text(self.pattern)})" if self.pattern else ""

    @property
    def order(self) -> str:
        """DAY_FIRST or MONTH_FIRST; empty where nothing is open: a year in front, a month's name or dots show it, or a part is missing."""
        places = [self.pattern.find(letter) for letter in ("d", "M", "yy")]
        if min(places) < 0 or "MMM" in self.pattern or places[2] == 0 or "." in self.pattern:
            return ""
        return DAY_FIRST if places[0] < places[1] else MONTH_FIRST

    def moments(self, texts: pa.Array) -> pa.Array:
        """Values that Spark makes of texts: dates, or times of microseconds in UTC."""
        if not self.pattern:
            plain = pc.replace_substring(pc.utf8_rtrim(texts, " UTCZ"), "T", " ")
            try:  # Arrow takes a tenth of the time, unless there are offsets
                return plain.cast(pa.timestamp("us")).cast(pa.date32() if self.is_date else pa.timestamp("us"))
            except pa.ArrowInvalid:
                pass
        parts = _Parts(pc.extract_regex(texts, self.look))
        years = parts.numbers("year", 1970) + (2_000 if self.has_short_years else 0)
        months = 3 * parts.numbers("quarter", 1) - 2 if parts.has("quarter") else parts.months
        firsts = ((years - 1970) * 12 + months - 1).astype("datetime64[M]")
        days = firsts.astype("datetime64[D]") + (parts.numbers("day", 1) - 1)
        is_month = (days.astype("datetime64[M]") == firsts) & (months >= 1) & (months <= 12) & (years > 0)
        is_null = ~is_month | (parts.numbers("hour", 0) > 23) | pc.is_null(parts.parts).to_numpy(zero_copy_only=False)
        if self.is_date:
            return pa.array(days, pa.date32(), mask=is_null)
        seconds = parts.hours * 3600 + parts.numbers("minute", 0) * 60 + parts.numbers("second", 0) - parts.zone_seconds
        moments = days.astype("datetime64[us]") + seconds * 1_000_000 + parts.microseconds
        return pa.array(moments, pa.timestamp("us"), mask=is_null)


@dataclass(frozen=True)
class _Parts:
    """The named parts of texts, as numbers."""

    parts: pa.StructArray

    def has(self, name: str) -> bool:
        return self.parts.type.get_field_index(name) >= 0

    def texts(self, name: str) -> pa.Array:
        return pc.fill_null(pc.struct_field(self.parts, name), "")

    def numbers(self, name: str, default: int) -> np.ndarray:
        """Whole numbers; the default where a text has no such part."""
        if not self.has(name):
            return np.full(len(self.parts), default)
        texts = self.texts(name)
        digits = pc.if_else(pc.equal(texts, ""), pa.scalar(str(default), texts.type), texts)
        return digits.cast(pa.int64()).to_numpy(zero_copy_only=False)

    @property
    def months(self) -> np.ndarray:
        if not self.has("name"):
            return self.numbers("month", 1)
        names = pc.utf8_lower(pc.utf8_slice_codeunits(self.texts("name"), 0, 3))
        places = pc.index_in(names, pa.array([name[:3].lower() for name in _MONTHS], names.type))
        return pc.fill_null(places, 0).to_numpy(zero_copy_only=False).astype(np.int64) + 1

    @property
    def hours(self) -> np.ndarray:
        hours = self.numbers("hour", 0)
        if not self.has("half"):
            return hours
        return hours % 12 + 12 * pc.equal(pc.utf8_upper(self.texts("half")), "PM").to_numpy(zero_copy_only=False)

    @property
    def microseconds(self) -> np.ndarray | int:
        if not self.has("fraction"):
            return 0
        digits = pc.utf8_slice_codeunits(pc.utf8_rpad(self.texts("fraction"), 6, "0"), 0, 6)
        return digits.cast(pa.int64()).to_numpy(zero_copy_only=False)

    @property
    def zone_seconds(self) -> np.ndarray | int:
        """Of each text, how far its clock is ahead of that of Greenwich."""
        if not self.has("zone"):
            return 0
        zones = self.texts("zone")
        distinct = pc.unique(zones)
        seconds_east = []
        for zone in distinct.to_pylist():
            digits = re.sub("[^0-9]", "", zone)
            seconds = int(digits[:2]) * 3600 + int(digits[2:] or 0) * 60 if digits else 0
            seconds_east.append(-seconds if "-" in zone else seconds)
        return pa.array(seconds_east, pa.int64()).take(pc.index_in(zones, distinct)).to_numpy(zero_copy_only=False)


@dataclass(frozen=True)
class MomentReading:
    """How a column of texts is read as moments."""

    form: MomentForm
    moments: pa.Array
    wrong: int
    """Texts that are no such moment."""
    decides: str = ""
    """DAY_FIRST or MONTH_FIRST, if the texts show it."""
    other: MomentForm | None = None
    """How the texts may be read as well."""
    reason: str = ""
    """Why they are not read so; empty if nothing but custom says it."""


def read_moments(texts: pa.Array, hints: Collection[str] = ()) -> MomentReading | None:
    """How nearly all of the texts are dates or times; None if they are none. `hints` are what other columns decide."""
    filled = texts.drop_null()
    shares = {form: share_of_looks(filled, form.look) for form in _fitting_forms(filled)}
    best = max(shares.values(), default=0.0)
    if best < 1 - MOST_WRONG:
        return None
    equal = [form for form, share in shares.items() if share == best]
    form = equal[0]
    other = next((other for other in equal[1:] if form.order and other.order and other.order != form.order), None)
    reason, moments = "", form.moments(texts)
    year_first = next((other for other in equal if other.has_short_years and other.pattern.startswith("yy")), None)
    if year_first and form is not year_first and _vary_plausibly(year_first.moments(texts)):
        if any(_vary_plausibly(candidate.moments(texts)) for candidate in (form, other) if candidate):
            other = other or year_first
        else:
            form, other, reason = year_first, form, "as its years would vary more than its days otherwise"
            moments = form.moments(texts)
    if other and year_first not in (form, other):
        form, other, reason = _choose_order(texts, form, other, hints)
        moments = form.moments(texts)
    wrong = moments.null_count - texts.null_count
    if wrong > MOST_WRONG * len(filled):
        return None
    return MomentReading(form, moments, wrong, "" if other else form.order, other, reason)


def _vary_plausibly(moments: pa.Array) -> bool:
    """Whether the days of months have at least as many different values as the years."""
    return len(pc.unique(pc.day(moments.drop_null()))) >= len(pc.unique(pc.year(moments.drop_null())))


def _choose_order(texts: pa.Array, form: MomentForm, other: MomentForm, hints: Collection[str]) -> tuple[MomentForm, MomentForm, str]:
    """Of two orders of day and month, the one that is read, the other, and why; by custom, a day is first but beside AM and PM."""
    first, second = (form, other) if (form.order == DAY_FIRST) != ("a" in form.pattern) else (other, form)
    for form, other in ((first, second), (second, first)):
        if form.order in hints and other.order not in hints:
            return form, other, "as in other columns"
    ordered = [form for form in (first, second) if _is_in_order(form.moments(texts))]
    if len(ordered) == 1:
        return ordered[0], second if ordered[0] is first else first, "as its rows are then in order of time"
    return first, second, ""


def look_like_moments(filled: pa.Array) -> bool:
    """Whether nearly all texts are short, and have a year and a time of day, or three numbers of a date, in whatever form."""
    return share_of_looks(filled, _LIKE_A_MOMENT) >= 1 - MOST_WRONG <= share_of_looks(filled, r"^.{6,40}$")


def find_order_conflict(filled: pa.Array) -> tuple[str, str] | None:
    """Of texts that are dates, of which some have the day before the month and others the month before the day, one of either."""
    first = filled.slice(0, _FIRST)
    marks = _most_frequent_marks(first.slice(0, _FIRST_DISTINCT).to_pylist())
    for pattern in _patterns_by_marks().get(marks, ()):
        if not re.match(r"dd?\WMM?\b", pattern):
            continue
        day_first, month_first = pattern_form(pattern), pattern_form(pattern.translate(str.maketrans("dM", "Md")))
        either = share_of_looks(first, f"{day_first.look}|{month_first.look}")
        if either < 1 - MOST_WRONG or any(share_of_looks(first, form.look) >= 1 - MOST_WRONG for form in (day_first, month_first)):
            continue
        only_day_first, only_month_first = (first.filter(pc.is_null(form.moments(first))) for form in (month_first, day_first))
        if len(only_day_first) and len(only_month_first):
            return only_day_first[0].as_py(), only_month_first[0].as_py()
    return None


def _is_in_order(moments: pa.Array) -> bool:
    """Whether nearly no row is before the one above it, or nearly none after."""
    values = moments.drop_null().cast(pa.timestamp("us")).cast(pa.int64()).to_numpy(zero_copy_only=False)
    steps = np.diff(values)
    steps = steps[steps != 0]
    return len(steps) > 2 and max(np.mean(steps > 0), np.mean(steps < 0)) >= 1 - MOST_WRONG


def pattern_form(pattern: str) -> MomentForm:
    """The form of a pattern of Spark, with a group for each part."""
    looks = [
        _LETTERS.get(part) or "".join(f"\\{character}" if character in "[]" else f"[{character}]" for character in part.strip("'"))
        for part in re.findall(r"'[^']*'|y+|M+|d+|H+|h+|m+|s+|S+|a|X+|Z|.", pattern.removeprefix("EEE"))
    ]
    if pattern.startswith("EEE"):
        looks = ["(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)", *(" +" if look == "[ ]" else look for look in looks)]
    return MomentForm(f"^{''.join(looks)}$", pattern)


def _fitting_forms(filled: pa.Array) -> list[MomentForm]:
    """The forms that most of the first texts have; of equally good ones, an earlier one is taken."""
    first = pc.unique(filled.slice(0, _FIRST)).slice(0, _FIRST_DISTINCT).to_pylist()
    most = 0.6 * len(first)
    if not first or sum(bool(re.search("[0-9]", text)) and 6 <= len(text) <= 40 for text in first) < most:
        return []
    iso = [MomentForm(look) for look in (_ISO_DATE, _ISO_TIME, *_QUARTERS)]
    marks = _most_frequent_marks(first)
    forms = [*iso, *map(pattern_form, _patterns_by_marks().get(marks, ()))]
    return [form for form in forms if sum(bool(re.search(form.look, text)) for text in first) >= most]


def patterns() -> list[str]:
    """Patterns of Spark, each with two digits in every part, and with one or two in days and months, or in hours, or in both; of equally
    good ones, an earlier one is taken."""
    spellings = list[str]()
    for pattern in [f"{date}{time}" for date in _DATES for time in _TIMES] + [*_MONTHS_OF_YEARS, *_FURTHER]:
        for date in (pattern, re.sub(r"\bdd\b", "d", re.sub(r"\bMM\b", "M", pattern))):
            spellings += (date, re.sub(r"\b(HH|hh)\b", lambda match: match[1][0], date))
    return list(dict.fromkeys(spellings))


@cache
def _patterns_by_marks() -> dict[str, list[str]]:
    """All patterns by what stands between their digits and letters."""
    by_marks: dict[str, list[str]] = {}
    for pattern in patterns():
        zones = ("Z", "+00:00", "-00:00") if "XXX" in pattern else ("+", "-") if "Z" in pattern else ("",)
        for zone in zones:
            by_marks.setdefault(_marks(re.sub("XXX|Z", zone, pattern.replace("'", ""))), []).append(pattern)
    return by_marks


def _most_frequent_marks(texts: Sequence[str]) -> str:
    return Counter(map(_marks, texts)).most_common(1)[0][0]


def _marks(text: str) -> str:
    return re.sub("[A-Za-z0-9]", "", re.sub(" +", " ", text))
