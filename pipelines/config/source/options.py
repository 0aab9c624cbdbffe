"""Checks the options of raw tables against those that the format supports. Spark ignores misspelt options without a warning."""

import codecs
from collections.abc import Mapping

from pipelines.config import secrets
from pipelines.config.messages.did_you_mean import suggestion
from pipelines.config.messages.wording import show_value
from pipelines.config.secrets import is_secret
from pipelines.config.source.formats import FORMATS, JSON_OPTIONS, TEXT_OPTIONS

_SWITCHES = {
    option.lower()
    for option in (
        "header", "enforceSchema", "ignoreLeadingWhiteSpace", "ignoreTrailingWhiteSpace", *JSON_OPTIONS, "wholetext", "mergeSchema",
        "recursiveFileLookup",
    )
}  # fmt: skip
Value = str | bool | int | float


def spark_options(options: Mapping[str, Value]) -> dict[str, str]:
    """Options by lower-case name, with values written as Spark writes them."""
    return {option.lower(): str(value).lower() if isinstance(value, bool) else str(value) for option, value in options.items()}


def check_options(table_format: str, options: Mapping[str, Value]) -> None:
    """Raise ValueError for an option that the format does not have, or for a value that is not valid."""
    supported = FORMATS[table_format].options
    for option, value in options.items():
        if is_secret(option):
            raise ValueError(f"{option} is a secret, {secrets.ELSEWHERE}")
        if option.lower() not in map(str.lower, supported):
            remedy = suggestion(option, supported, f"choose one of {', '.join(supported)}" if supported else "it has no options")
            raise ValueError(f"{table_format} has no option {option}; {remedy}")
        if rule := _broken_rule(option.lower(), str(value)):
            raise ValueError(f"{option} is {show_value(value)}; {rule}")


def _broken_rule(option: str, value: str) -> str:
    if option in _SWITCHES and value.lower() not in ("true", "false"):
        return "it must be true or false"
    if option == "skiprows" and not value.isdecimal():
        return "it must be a whole number of lines"
    if option in ("quote", "escape") and (len(value) > 1 or not value.isascii()):
        return "it must be one ASCII character, or '' for none"
    if option in ("sep", "delimiter") and (not value or set(value) & set('"\r\n\0') or ("\\" in value and value != "\\t")):
        return "it must be the separator of values, such as ; or \\t, without double quotes, backslashes or line breaks"
    if option in ("maxcolumns", "maxcharspercolumn") and not value.removeprefix("-").isdecimal():
        return "it must be a whole number"
    if option in TEXT_OPTIONS and not _encodes_text(value):
        return "it must be a text encoding that Python supports, such as ISO-8859-1"
    return ""


def _encodes_text(encoding: str) -> bool:
    """Whether Python has the codec, and text is unchanged when it is encoded and decoded byte by byte. base64 does not decode to
    text, and punycode cannot be decoded byte by byte."""
    sample = "a,1\r\n" + "b" * 100
    try:
        encoded = sample.encode(encoding)
        decoder = codecs.getincrementaldecoder(encoding)("strict")
        return "".join(decoder.decode(encoded[place : place + 1]) for place in range(len(encoded))) + decoder.decode(b"", True) == sample
    except (LookupError, ValueError):
        return False
