"""Why a demonstration ended before it was done, in one sentence."""

from millstream.errors import MillstreamError


class DemoFailed(MillstreamError):
    """A part did not start, or what came out is not what went in, or it was told to stop."""
