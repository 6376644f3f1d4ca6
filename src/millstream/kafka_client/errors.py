"""Errors between a blocking client and a broker.

Three kinds: `TransientError` may pass if the same is asked again, perhaps of another broker;
`Refused` and its subclasses stay as they are; `Unreachable` is raised when retries are used up.
Sockets raise `OSError`, answers that break the protocol `ProtocolError`: both count as transient.
"""

from millstream.errors import MillstreamError


class TransientError(MillstreamError):
    """A broker answered that it cannot do it now: a moment, or another broker, will change that."""


class OutOfRange(MillstreamError):
    """The offset to fetch from is not in the log, or not any more."""


class CorruptMessage(MillstreamError):
    """The broker refuses to read at the offset: the bytes on its disk are not those written."""


class UnknownPartition(MillstreamError):
    """The topic or the partition does not exist, or not any more."""

    def __init__(self, target: object) -> None:
        super().__init__(f"there is no topic or partition {target}")


class Unreachable(MillstreamError):
    """No broker completed the request within the time that the settings allow."""


class Refused(MillstreamError):
    """A broker refused a request, and would refuse it again."""


class UnsupportedApi(Refused):
    """The broker does not serve this request, or not in a version that both know."""


class AuthenticationFailed(Refused):
    """The broker does not take this SASL mechanism, user or password, or failed to prove itself."""


class TlsFailed(Refused):
    """TLS could not be set up: a certificate is not trusted, or a file cannot be used."""


class InvalidSecurity(MillstreamError, ValueError):
    """The settings ask for a protocol or a mechanism that is not supported here."""
