"""`run_broker`: a real broker for the length of a test, with faults to inject.

Decides which fault is possible in which mode. Invariant: address and storage stay the same over
`kill` and `restart`, so clients find again what they left.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from enum import Enum
from pathlib import Path
from secrets import token_urlsafe
from typing import Literal, NamedTuple, overload

from millstream.config import Config, Limits, Timing
from millstream.security.settings import ITERATIONS_MIN, Tls
from millstream.testing.cluster import RunningCluster, run_cluster
from millstream.testing.in_process import InProcess
from millstream.testing.lives import CannotDoThis, Life, NotRunning
from millstream.testing.lost_acks import LostAcks, What
from millstream.testing.process import Subprocess

Mode = Literal["in-process", "subprocess"]
Storage = Literal["memory", "disk"]

PASSWORD_BYTES = 18

# A test has no stragglers to wait for: the first member of a group gets its partitions at once. And
# no clients that are gone for good: to move the clock is not to cut connections.
DEFAULTS = Config(
    timing=Timing(group_initial_rebalance_delay_ms=0),
    limits=Limits(connection_idle_ms_max=100 * 365 * 24 * 60 * 60 * 1000),
)


class State(Enum):
    RUNNING = "running"
    PAUSED = "paused"
    DOWN = "down"


class Knob(Enum):
    PAUSE = "pause"
    RESUME = "resume"
    KILL = "kill"
    RESTART = "restart"
    DROP_ACKS = "drop_acks"
    ADVANCE_CLOCK = "advance_clock"
    CREATE_TOPIC = "create_topic"


TRANSITIONS: dict[tuple[State, Knob], State] = {
    (State.RUNNING, Knob.PAUSE): State.PAUSED,
    (State.PAUSED, Knob.RESUME): State.RUNNING,
    (State.RUNNING, Knob.KILL): State.DOWN,
    (State.PAUSED, Knob.KILL): State.DOWN,
    (State.RUNNING, Knob.RESTART): State.RUNNING,
    (State.PAUSED, Knob.RESTART): State.RUNNING,
    (State.DOWN, Knob.RESTART): State.RUNNING,
    (State.RUNNING, Knob.DROP_ACKS): State.RUNNING,
    (State.RUNNING, Knob.ADVANCE_CLOCK): State.RUNNING,
    (State.RUNNING, Knob.CREATE_TOPIC): State.RUNNING,
}


class Credentials(NamedTuple):
    """The first user of a secure broker, and the file of the CA that signed its certificate."""

    user: str
    password: str
    ca_file: str


class RunningBroker:
    """A broker that a test runs against; made by `run_broker`. Not for several threads at once."""

    def __init__(self, life: Life) -> None:
        self.credentials: Credentials | None = None  # Of a broker that is secure.
        self._life = life
        self._state = State.RUNNING

    @property
    def client_settings(self) -> dict[str, str]:
        """Settings of a client of librdkafka, TLS and login included."""
        settings = {"bootstrap.servers": self.bootstrap}
        if self.credentials is not None:
            settings |= {
                "security.protocol": "SASL_SSL",
                "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": self.credentials.user,
                "sasl.password": self.credentials.password,
                "ssl.ca.location": self.credentials.ca_file,
            }
        return settings

    @property
    def bootstrap(self) -> str:
        """The address, as clients take it in `bootstrap.servers`."""
        return f"{self.host}:{self.port}"

    @property
    def host(self) -> str:
        return self._life.config.host

    @property
    def port(self) -> int:
        """The port of Kafka and FlyMQ clients."""
        return self._life.config.port

    @property
    def flux_port(self) -> int:
        return self._life.config.flux_port

    @property
    def classic_port(self) -> int:
        return self._life.config.classic_port

    @property
    def http_url(self) -> str:
        """The address of REST, schema registry and console, of a broker with `http=True`."""
        config = self._life.config
        if "http" not in config.listeners:
            raise NotRunning("this broker has no HTTP: run_broker(http=True)")
        scheme = "http" if self.credentials is None else "https"
        return f"{scheme}://{self.host}:{config.http_port}"

    def pause(self) -> None:
        """Freeze the broker: it accepts, reads and answers nothing until `resume`.

        Connections stay open, so clients run into their own timeouts. In a process of its own this
        is SIGSTOP; in this one the thread of the broker is held, to the same effect.
        """
        self._turn(Knob.PAUSE)
        self._life.pause()

    def resume(self) -> None:
        """Go on after `pause`. What fell due in between is done now, such as session timeouts."""
        self._turn(Knob.RESUME)
        self._life.resume()

    def kill(self) -> None:
        """End the broker as kill -9 does: clients are cut off, nothing is put in order.

        What was acknowledged is there after `restart`, on disk in either mode, in memory in this
        process. Memory of a process of its own is gone with it.
        """
        self._turn(Knob.KILL)
        self._life.kill()

    def restart(self) -> None:
        """Stop the broker in good order, unless it is down, and start it at the same address.

        What survives is what survives `kill`; groups and transactions are found again as well.
        """
        before = self._state
        self._turn(Knob.RESTART)
        if before is State.PAUSED:
            self._life.resume()
        self._state = State.DOWN  # Until it is up again, whatever happens.
        if before is not State.DOWN:
            self._life.stop()
        self._life.start()
        self._state = State.RUNNING

    def drop_acks(self, of: What = "produce", *, count: int | None = None) -> LostAcks:
        """Lose acknowledgements: what is asked for is done, and the connection is cut instead of
        the answer. `count` of them, or all until `stop()` or the end of a `with` block.

        `of` says whose: "produce", "commit" (of offsets) or "transaction" (commit and abort). Only
        in this process.
        """
        self._turn(Knob.DROP_ACKS)
        return self._life.drop_acks(of, count)

    def advance_clock(self, ms: int) -> None:
        """Move the broker's clock forward, as if it had slept for so long. Only in this process.

        It moves timestamps that the broker gives, and every timer of it: retention and compaction,
        session and transaction timeouts, expiry of offsets and ids, fetches that wait. What is due
        has begun when this returns; where threads or other members are involved, wait for the
        outcome. Clients keep their own clocks.
        """
        if ms < 0:
            raise ValueError(f"ms = {ms}: a clock is moved forward only")
        self._turn(Knob.ADVANCE_CLOCK)
        self._life.advance_clock(ms)

    def create_topic(
        self, name: str, *, partitions: int = 1, settings: Mapping[str, object] | None = None
    ) -> None:
        """Create a topic; settings are spelt `retention.ms` or `retention_ms`, with any scalar."""
        self._turn(Knob.CREATE_TOPIC)
        self._life.create_topic(name, partitions, settings or {})

    def _turn(self, knob: Knob) -> None:
        after = TRANSITIONS.get((self._state, knob))
        if after is None:
            raise NotRunning(f"{knob.value}() of a broker that is {self._state.value}")
        self._state = after

    def _end(self) -> None:
        """End the broker, in whatever state the test left it."""
        if self._state is State.PAUSED:
            self._life.resume()
        if self._state is not State.DOWN:
            self._life.stop()


class SharedBroker(RunningBroker):
    """A broker that many tests share: what one does to it ends with the test, by `heal`."""

    def advance_clock(self, ms: int) -> None:
        """Refuse: the clock never goes back, and later tests would live in the future."""
        raise CannotDoThis(
            f"advance_clock({ms}) of a broker that tests share: retention would delete what later "
            "tests write. Take the fixture millstream_own_broker, or run_broker()"
        )

    def heal(self) -> None:
        """Run again after a pause or a kill, and lose no more acknowledgements."""
        self._life.keep_acks()
        if self._state is State.PAUSED:
            self.resume()
        elif self._state is State.DOWN:
            self.restart()


@overload
def run_broker(
    *,
    mode: Mode = "in-process",
    storage: Storage = "memory",
    directory: str | Path | None = None,
    port: int = 0,
    config: Config = DEFAULTS,
    kind: type[RunningBroker] = RunningBroker,
    secure: bool = False,
    http: bool = False,
) -> AbstractContextManager[RunningBroker]: ...


@overload
def run_broker(
    *, nodes: int, directory: str | Path | None = None, config: Config = DEFAULTS
) -> AbstractContextManager[RunningCluster]: ...


def run_broker(
    *,
    mode: Mode = "in-process",
    storage: Storage = "memory",
    directory: str | Path | None = None,
    port: int = 0,
    config: Config = DEFAULTS,
    kind: type[RunningBroker] = RunningBroker,
    secure: bool = False,
    http: bool = False,
    nodes: int | None = None,
) -> AbstractContextManager[RunningBroker] | AbstractContextManager[RunningCluster]:
    """Run a broker for the length of a block; clients are served when the block begins.

    With port 0 it takes a free one, so any number of them run side by side. `directory` is where
    disk storage goes and stays; without one it is temporary. The rest of `config` holds as it is.
    `kind` is the class of the broker, for a fixture with rules of its own. With `secure` it has TLS
    and asks for a login: `broker.client_settings` has what clients need, for as long as it runs.
    With `http` it serves REST, the schema registry and the console at `broker.http_url`.

    With `nodes` it is a cluster of so many processes with disks, of which the test kills, stops and
    starts each; of the other arguments it takes `directory` and `config`.
    """
    if nodes is None:
        return _run_one(mode, storage, directory, port, config, kind, secure, http)
    options = (mode, storage, port, kind, secure, http)
    if options != ("in-process", "memory", 0, RunningBroker, False, False):
        raise ValueError("a cluster takes nodes, directory and config only")
    return run_cluster(nodes, directory=directory, config=config)


@contextmanager
def _run_one(
    mode: Mode,
    storage: Storage,
    directory: str | Path | None,
    port: int,
    config: Config,
    kind: type[RunningBroker],
    secure: bool,
    http: bool,
) -> Iterator[RunningBroker]:
    with ExitStack() as stack:
        data = Path(directory) if directory is not None else None
        if data is None and (storage == "disk" or mode == "subprocess"):
            data = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millstream-")))
        config = replace(config, storage=storage, port=port)
        if http and "http" not in config.listeners:
            config = replace(config, listeners=(*config.listeners, "http"))
        if data is not None:
            config = replace(config, data_dir=str(data / "data"))
        credentials = None
        if secure:
            files = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millstream-")))
            config, credentials = _secured(config, files)
        life: Life
        if mode == "subprocess":
            assert data is not None
            data.mkdir(parents=True, exist_ok=True)
            life = Subprocess(config, data / "broker.log")
        else:
            life = InProcess(config)
        life.start()
        broker = kind(life)
        broker.credentials = credentials
        stack.callback(broker._end)
        yield broker


def _secured(config: Config, files: Path) -> tuple[Config, Credentials]:
    """A configuration with TLS and logins, from certificates and a password made in `files`."""
    from millstream.security.secrets import Secret
    from millstream.server.system.dev_certificates import make_dev_certificates

    make_dev_certificates(files)
    credentials = Credentials(
        config.security.admin_user, token_urlsafe(PASSWORD_BYTES), str(files / "ca.pem")
    )
    password = files / "password"
    password.touch(mode=0o600)
    password.write_text(credentials.password, encoding="utf-8")
    security = replace(
        config.security,
        protocol="sasl_tls",
        admin_password=Secret.parse(f"file:{password}"),
        scram_iterations=ITERATIONS_MIN,
    )
    tls = Tls(certificate=str(files / "server.pem"), key=str(files / "server.key"))
    return replace(config, security=security, tls=tls), credentials
