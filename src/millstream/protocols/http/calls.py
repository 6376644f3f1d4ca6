"""A call of a handler: who asks, what it may use, and the types that all nouns share."""

from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import msgspec

from millstream.model import Session
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.router import Params

if TYPE_CHECKING:
    from millstream.protocols.http.context import Services

T = TypeVar("T")

LIMIT_DEFAULT = 100

Limit = Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """`services` are the engine's; every one of their calls passes the gate with `session`."""

    services: "Services"
    session: Session
    request_id: str = ""
    is_login_required: bool = False
    is_known: bool = True  # The client has logged in, or needs not.
    revision: str | None = None  # Of `If-Match`: the change is for this revision only.
    key: str = ""  # Of `Idempotency-Key`.
    cursor: str = ""  # Of `Last-Event-ID`: where a stream goes on.
    accept: str = ""
    # Pieces of a streamed body, None at its end. Any: set for routes that take a stream only.
    receive: Callable[[], Any] | None = None
    query: tuple[tuple[str, str], ...] = ()  # As it stands: a name may stand twice.
    extra: dict[str, str] = field(default_factory=dict)  # Headers of the request, in lower case.

    def check_revision(self, current: str) -> None:
        """Raise unless the change is for what is there."""
        if self.revision is not None and self.revision not in {"*", current}:
            raise HttpProblem(
                HTTPStatus.PRECONDITION_FAILED,
                "stale_revision",
                f"If-Match asks for revision {self.revision}, there is {current}: read it again",
            )

    def limit(self, asked: int) -> int:
        """How many items a page has; raise if that is more than `http.page_max`."""
        most = self.services.config.http.page_max
        if asked > most:
            raise HttpProblem(
                HTTPStatus.BAD_REQUEST,
                "invalid_request",
                f"limit = {asked}, at most {most} (http.page_max)",
                fields=("limit",),
            )
        return asked


class Listing(Params, frozen=True, kw_only=True):
    """The query of every list."""

    limit: Limit = LIMIT_DEFAULT
    after: str = ""  # The `next` of the page before.
    name: str = ""  # Text that the name contains, or a pattern with `*`.


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A part of a list; `next` is the `after` of the part that follows, or null."""

    items: list[T]
    next: str | None = None


def iso_time(at_ms: int) -> str:
    """RFC 3339 in UTC, with milliseconds."""
    days, ms = divmod(at_ms, 24 * 60 * 60 * 1000)
    seconds, ms = divmod(ms, 1000)
    minutes, second = divmod(seconds, 60)
    hour, minute = divmod(minutes, 60)
    # Days to a date of the Gregorian calendar, counted from March so that February is last.
    era, day_of_era = divmod(days + 719_468, 146_097)
    year_of_era = (
        day_of_era - day_of_era // 1460 + day_of_era // 36_524 - day_of_era // 146_096
    ) // 365
    day_of_year = day_of_era - (365 * year_of_era + year_of_era // 4 - year_of_era // 100)
    months = (5 * day_of_year + 2) // 153
    day = day_of_year - (153 * months + 2) // 5 + 1
    month = months + 3 if months < 10 else months - 9
    year = year_of_era + era * 400 + (month <= 2)
    return f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}.{ms:03d}Z"
