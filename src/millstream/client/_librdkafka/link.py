"""The way to the cluster that the parts of one client share: address, settings, time limits.

Owns the translation of settings to librdkafka's and of its exceptions to ours. librdkafka retries a
broker that is down in silence; what it says aside is remembered here, so that a call that runs out
of time can say why.
"""

import logging
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotDone
from time import monotonic
from typing import TYPE_CHECKING, Any

from millstream.client.errors import (
    ClientError,
    Refused,
    TimedOut,
    Unreachable,
    from_kafka,
    unreachable,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from confluent_kafka import KafkaError

TIMEOUT_S = 30.0
# Kafka's delivery.timeout.ms: a restart of the broker fits in.
DELIVERY_TIMEOUT_S = 120.0
STEP_S = 0.05

# Any: librdkafka takes text, numbers, truths and callbacks.
Settings = dict[str, Any]

log = logging.getLogger("millstream.client")
# A library is silent until the program sets up logging.
log.addHandler(logging.NullHandler())

# The few settings of librdkafka with underscores in their names.
_UNDERSCORED = {
    *("log_level", "error_cb", "stats_cb", "throttle_cb", "oauth_cb"),
    *("on_commit", "on_delivery", "logger"),
}

# Called by librdkafka in the thread that polls: what they raise would end that thread, or come out
# of a call that has nothing to do with it. `oauth_cb` is not among them: its error is its answer.
_CALLBACKS = {"error_cb", "stats_cb", "throttle_cb", "on_commit", "on_delivery"}


def dotted(settings: Settings) -> Settings:
    """Settings with librdkafka's names: the keyword `linger_ms` becomes `linger.ms`."""
    return {
        name if name in _UNDERSCORED else name.replace("_", "."): value
        for name, value in settings.items()
    }


class Link:
    """One cluster as one client sees it. Threads may share it."""

    def __init__(
        self,
        address: str,
        settings: Settings,
        *,
        timeout_s: float = TIMEOUT_S,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
    ) -> None:
        for name, span_s in (("timeout_s", timeout_s), ("delivery_timeout_s", delivery_timeout_s)):
            if span_s <= 0:
                raise Refused(f"{name} is {span_s}; it must be more than 0 seconds")
        self.address = address
        self.timeout_s = timeout_s
        self.delivery_timeout_s = delivery_timeout_s
        self.down_reason = ""
        self.is_down = False
        # Whether its brokers carry out delays and the like; set by the client, which can ask them.
        self.has_queues: Callable[[], bool] = lambda: False
        # Why the broker takes no records, in one sentence; empty if it is not known.
        self.explain_stall: Callable[[], str] = lambda: ""
        self._settings = dotted(settings)

    def config(self, *layers: Settings) -> Settings:
        """librdkafka's configuration; later layers win, the user's own over our defaults."""
        config: Settings = {
            "bootstrap.servers": self.address,
            "client.id": "millstream",
            "logger": log,
            "reconnect.backoff.ms": 50,
            "reconnect.backoff.max.ms": 1_000,
        }
        for layer in (*layers[:1], self._settings, *layers[1:]):
            config |= dotted(layer)
        for name in _CALLBACKS & config.keys():
            config[name] = _guarded(name, config[name])
        heard = config.get("error_cb")
        config["error_cb"] = lambda error: self._hear(error, heard)
        return config

    def open(self, kind: "Callable[[Settings], Any]", config: Settings) -> Any:
        """Make a handle; a setting that does not exist or a bad value is refused by name."""
        from confluent_kafka import KafkaException

        try:
            return kind(config)
        except KafkaException as problem:
            error: KafkaError = problem.args[0]
            raise Refused(f"bad setting: {error.str().strip()}", code=error.name()) from problem
        except (TypeError, ValueError) as problem:
            raise Refused(f"bad setting: {problem}") from problem

    def failure(self, problem: BaseException, doing: str) -> ClientError:
        """Our error for what librdkafka raised while `doing` something."""
        if isinstance(problem, ClientError):
            return problem
        from confluent_kafka import KafkaException

        if not isinstance(problem, KafkaException):
            return Refused(f"cannot {doing}: {problem}")
        return self.error(problem.args[0], doing)

    def error(self, error: "KafkaError", doing: str) -> ClientError:
        typed = from_kafka(error, doing)
        is_down = isinstance(typed, TimedOut) and self.down_reason
        if is_down or isinstance(typed, Unreachable):
            return unreachable(self.address, doing, self.down_reason or error.str())
        return typed

    # The result of an administrative call is of a type that depends on the call.
    def wait(
        self, future: "Future[Any]", doing: str, *, poll: "Callable[[float], Any]", is_hasty: bool
    ) -> Any:
        """Wait for an answer. `is_hasty` gives up at once when no broker can be reached."""
        deadline = monotonic() + self.timeout_s
        while True:
            try:
                answer = future.result(STEP_S)
            except NotDone:
                poll(0)
                if is_hasty and self.is_down:
                    raise unreachable(self.address, doing, self.down_reason) from None
                if monotonic() > deadline + 1.0:  # librdkafka keeps the time; this is a net.
                    raise self._late(doing) from None
            except Exception as problem:
                poll(0)
                raise self.failure(problem, doing) from problem
            else:
                self.reached()
                return answer

    def reached(self) -> None:
        """A broker answered: what was heard before no longer counts."""
        self.down_reason, self.is_down = "", False

    def _late(self, doing: str) -> ClientError:
        if self.down_reason:
            return unreachable(self.address, doing, self.down_reason)
        return TimedOut(f"cannot {doing}: no answer in {self.timeout_s:g} s.", retriable=True)

    def _hear(self, error: "KafkaError", heard: "Callable[[KafkaError], None] | None") -> None:
        name = error.name()
        if name in ("_TRANSPORT", "_RESOLVE", "_AUTHENTICATION", "_SSL"):
            self.down_reason = _reason(error.str())
        elif name == "_ALL_BROKERS_DOWN":
            self.down_reason = self.down_reason or "all brokers are down"
            self.is_down = True
        log.info("librdkafka said code=%s reason=%s", name, error.str())
        if heard is not None:
            heard(error)


# A callback takes what librdkafka gives for its kind.
def _guarded(name: str, callback: "Callable[..., object]") -> "Callable[..., None]":
    def call(*arguments: Any) -> None:
        try:
            callback(*arguments)
        except Exception:
            log.exception("a callback of the program failed callback=%s", name)

    return call


def _reason(said: str) -> str:
    """The part of librdkafka's line that says why, without its names of threads and handles."""
    for marker in ("failed: ", "Failed to resolve", "Disconnected"):
        if marker in said:
            start = said.index(marker) + (len(marker) if marker == "failed: " else 0)
            return said[start:].split(" (after")[0].strip()
    return said
