"""Computes when a record expires: by its topic's time to live, or sooner by its own.

Pure. Readers and compaction share these rules, so a record that is reclaimed is never still shown.
The shorter of the two times counts: a topic's own is a promise about all its records. A record
without a timestamp has no age and does not expire.
"""

from typing import NamedTuple

from millstream.codec.batch import Header
from millstream.codec.records import Record, oldest_timestamp
from millstream.names import TTL_HEADER
from millstream.settings import UNLIMITED, Switch, TopicSettings

NEVER_MS = 2**63 - 1

_TTL_HEADER = TTL_HEADER.encode()
_DIGITS_MAX = 18  # A number of that many digits fits into 64 bits, and is ages.


class Lifetime(NamedTuple):
    """How long the records of a topic live; made only where any of them may end."""

    default_ms: int
    reads_headers: bool

    def ends_ms(self, record: Record) -> int:
        """From this time on no reader is shown the record."""
        if record.timestamp < 0:
            return NEVER_MS
        shortest = NEVER_MS if self.default_ms == UNLIMITED else self.default_ms
        if self.reads_headers and record.headers:
            shortest = min(shortest, _own_ttl(record))
        return min(NEVER_MS, record.timestamp + shortest)

    def all_have_ended(self, header: Header, now_ms: int) -> bool:
        """Whether the header alone says that every record of the batch is past its time."""
        return (
            self.default_ms != UNLIMITED
            and header.max_timestamp >= 0
            and header.max_timestamp + self.default_ms <= now_ms
        )

    def may_end(self, data: bytes) -> bool:
        """Whether any record in these uncompressed bytes of a batch has a time to live."""
        return self.default_ms != UNLIMITED or _TTL_HEADER in data

    def none_has_ended(self, header: Header, data: bytes, now_ms: int) -> bool:
        """Whether a quick look shows that no record of the batch is past its time."""
        if self.reads_headers and _TTL_HEADER in data:
            return False
        return (
            self.default_ms == UNLIMITED
            or oldest_timestamp(header, data) + self.default_ms > now_ms
        )


def lifetime_of(settings: TopicSettings) -> Lifetime | None:
    """None for a topic whose records live as long as it keeps them."""
    reads_headers = settings.message_ttl_headers is Switch.ON
    if settings.message_ttl_ms == UNLIMITED and not reads_headers:
        return None
    return Lifetime(settings.message_ttl_ms, reads_headers)


def _own_ttl(record: Record) -> int:
    """By the last header of that name, as everywhere."""
    for name, content in reversed(record.headers):
        if name == TTL_HEADER:
            if content is not None and content.isdigit() and len(content) <= _DIGITS_MAX:
                return int(content)
            break  # Written while the topic did not read the header.
    return NEVER_MS
