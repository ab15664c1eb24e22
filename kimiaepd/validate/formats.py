"""The two string formats that the standard's schemas name, checked in earnest.

`date-time` is the `date-time` of RFC 3339 and nothing wider: a time zone is required, and the day
must exist. `uri` is a scheme and then only characters that RFC 3986 lets stand in a URI, so that
an unencoded space or umlaut is found. Neither looks at what a name means or whether it resolves.
"""

from __future__ import annotations

import calendar
import re

_DATE_TIME = re.compile(
    r"([0-9]{4})-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
    r"[Tt](?:[01][0-9]|2[0-3]):[0-5][0-9]:(?:[0-5][0-9]|60)(?:\.[0-9]+)?"  # 60: a leap second
    r"(?:[Zz]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
)
_URI = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*:(?:[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*"
)


def is_date_time(text: str) -> bool:
    """Whether the text is an RFC 3339 date-time of a day that exists."""
    match = _DATE_TIME.fullmatch(text)
    if match is None:
        return False
    year, month, day = map(int, match.groups())
    # Year 0 is legal in RFC 3339 and a leap year; monthrange knows years from 1.
    return day <= calendar.monthrange(year or 4, month)[1]


def is_uri(text: str) -> bool:
    """Whether the text has a scheme and only characters that may stand in a URI."""
    return _URI.fullmatch(text) is not None


FORMATS = {"date-time": is_date_time, "uri": is_uri}
"""What a `format` of the schemas means here, by its name."""
