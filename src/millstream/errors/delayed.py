"""Errors of delayed records."""

from millstream.errors import RequestError


class UnknownDelayedRecord(RequestError):
    """No such delayed record: it never was, it was cancelled, or it is delivered or about to be."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no delayed record {name[:300]!r} is waiting")
        self.name = name
