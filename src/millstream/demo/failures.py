"""The error that ends a demonstration, as one sentence."""

from millstream.errors import MillstreamError


class DemoFailed(MillstreamError):
    """A part did not start, records are missing or doubled, or the user stopped it."""
