"""Millstream: one durable log that many protocols speak to, with Spark as its mill."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.base_error import MillstreamError
    from millstream.embedding import Broker, BrokerConfig

__version__ = "0.1.0"

__all__ = ["__version__", "Broker", "BrokerConfig", "MillstreamError"]


def __getattr__(name: str) -> object:
    """Load the broker when it is asked for: who only imports a part pays for that part."""
    if name == "MillstreamError":
        from millstream.base_error import MillstreamError

        return MillstreamError
    if name not in {"Broker", "BrokerConfig"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from millstream import embedding

    return getattr(embedding, name)
