"""The interface of every way to run a broker for a test, with its refusals."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Protocol

from millstream.base_error import MillstreamError
from millstream.config import Config
from millstream.testing.lost_acks import LostAcks, What

# A process that gives up is noticed at once. These end one that hangs, and not one that is slow
# because ten others start beside it.
START_SECONDS_MAX = 90
STOP_SECONDS_MAX = 90


class CannotDoThis(MillstreamError, RuntimeError):
    """A fault that a broker of this mode cannot inject; the message names the mode that can."""


class NotRunning(MillstreamError, RuntimeError):
    """The call is not possible in the state of the broker."""


def with_ports(config: Config, ports: Mapping[str, int]) -> Config:
    """The same with the ports that the listeners were opened on, to open them there again."""
    return replace(
        config,
        port=ports.get("kafka", config.port),
        flux_port=ports.get("flux", config.flux_port),
        classic_port=ports.get("classic", config.classic_port),
        http_port=ports.get("http", config.http_port),
    )


def ports_of(config: Config) -> tuple[int, ...]:
    """The ports that `with_ports` notes."""
    return config.port, config.flux_port, config.classic_port, config.http_port


class Life(Protocol):
    """A broker that is started, ended and started again; storage and port stay the same."""

    config: Config  # With the ports that were free, once it has started.

    def start(self) -> None:
        """Return when clients are served."""

    def stop(self) -> None:
        """End in good order."""

    def kill(self) -> None:
        """End as kill -9 does. Also ends one that is paused."""

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def drop_acks(self, of: What, count: int | None) -> LostAcks: ...

    def keep_acks(self) -> None:
        """End every loss that was begun."""

    def advance_clock(self, ms: int) -> None: ...

    def create_topic(self, name: str, partitions: int, settings: Mapping[str, object]) -> None: ...
