"""Long attacks on a broker that asks for logins: half-open, mutated, and ended sessions.

`make soak` runs them whole: handshakes are mutated for an hour. `TESTS_SOAK_SECONDS` is another
time, for a try.
"""

import os
import random
import resource
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

from millstream.kafka_wire.apis.security import SaslAuthenticateRequest, SaslHandshakeRequest
from millstream.server.system.dev_certificates import make_dev_certificates
from tests.protocols.secured.test_hostile import client_hello, request
from tests.support.broker_process import BrokerProcess

PASSWORD = "a password of soaks"
SOAK_SECONDS = float(os.environ.get("TESTS_SOAK_SECONDS", "3600"))
REAUTHENTICATION_SECONDS = min(SOAK_SECONDS, 60.0)
SESSION_MS = 2_000
HALF_OPEN = 10_000
DESCRIPTORS_SPARE = 500
MIB = 2**20
MEMORY_MAX = 200 * MIB  # More than before, with all that is half open.
DEADLINE_S = 60.0

pytestmark = [pytest.mark.soak, pytest.mark.timeout(SOAK_SECONDS + 600)]


class Secured:
    def __init__(self, process: BrokerProcess, ca: Path) -> None:
        self.process = process
        self.ca = ca

    @property
    def place(self) -> tuple[str, int]:
        return self.process.host, self.process.port

    def settings(self) -> dict[str, object]:
        return {
            "bootstrap.servers": self.process.address,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "admin",
            "sasl.password": PASSWORD,
        }

    def assert_serves(self) -> None:
        """A client logs in and writes, and the broker met nothing that it did not foresee."""
        producer, outcomes = Producer(self.settings()), list[KafkaError | None]()
        producer.produce("orders", b"x", callback=lambda error, _: outcomes.append(error))
        assert producer.flush(DEADLINE_S) == 0
        assert outcomes == [None]
        assert self.process._running.poll() is None
        assert "Traceback" not in self.process.log

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process._running.pid}/status").read_text(encoding="utf-8")
        return 1024 * int(status.partition("VmRSS:")[2].split()[0])


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Secured]:
    files = tmp_path / "tls"
    make_dev_certificates(files)
    password = tmp_path / "password"
    password.write_text(PASSWORD, encoding="utf-8")
    password.chmod(0o600)
    process = BrokerProcess(
        tmp_path,
        SECURITY__PROTOCOL="sasl_tls",
        SECURITY__ADMIN_PASSWORD=f"file:{password}",
        SECURITY__SESSION_MS_MAX=SESSION_MS,
        SECURITY__FAILED_LOGIN_DELAY_MS=1,
        SECURITY__FAILED_LOGIN_DELAY_MS_MAX=1,
        SECURITY__SCRAM_ITERATIONS=4096,
        TLS__CERTIFICATE=files / "server.pem",
        TLS__KEY=files / "server.key",
    )
    process.start()
    try:
        yield Secured(process, files / "ca.pem")
    finally:
        process.kill()


def test_ten_thousand_half_open_handshakes_keep_no_client_out(secured: Secured) -> None:
    """A third has said nothing, a third begins TLS, a third is cut inside its hello."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(HALF_OPEN, most - DESCRIPTORS_SPARE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    hello = client_hello()
    secured.assert_serves()
    before = secured.resident_bytes()
    half_open: list[socket.socket] = []
    try:
        for number in range(count):
            connection = socket.create_connection(secured.place, DEADLINE_S)
            half_open.append(connection)
            with suppress(ConnectionError):  # It may be the oldest of too many.
                connection.sendall((b"", hello[:5], hello[: len(hello) // 2])[number % 3])
            if number % 2_000 == 1_999:
                secured.assert_serves()
        assert secured.resident_bytes() - before < MEMORY_MAX
    finally:
        for connection in half_open:
            connection.close()
    secured.assert_serves()


def test_mutated_handshakes_harm_nothing(secured: Secured) -> None:
    """TLS hellos, and logins inside TLS; each connection ends alone."""
    seed = random.randrange(2**32)
    drawn, hello = random.Random(seed), client_hello()
    context = ssl.create_default_context(cafile=str(secured.ca))
    first = b"n,,n=admin,r=abcdefghijkl"
    login = request(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1) + request(
        SaslAuthenticateRequest(auth_bytes=first)
    )
    secured.assert_serves()
    before, deadline, tries = secured.resident_bytes(), time.monotonic() + SOAK_SECONDS, 0
    while time.monotonic() < deadline:
        tries += 1
        with socket.create_connection(secured.place, DEADLINE_S) as plain:
            try:
                if tries % 2:
                    talk(plain, mutated(hello, drawn))
                else:
                    with context.wrap_socket(plain, server_hostname="localhost") as connection:
                        talk(connection, mutated(login, drawn))
            except (OSError, ssl.SSLError):
                pass  # The end of the connection is an answer.
        if tries % 1_000 == 0:
            secured.assert_serves()
    secured.assert_serves()

    assert secured.resident_bytes() - before < MEMORY_MAX, f"seed {seed}"


def mutated(data: bytes, drawn: random.Random) -> bytes:
    """Changed, cut, doubled or longer, at one to six places."""
    bad = bytearray(data)
    for _ in range(drawn.randint(1, 6)):
        at = drawn.randrange(len(bad))
        match drawn.randrange(5):
            case 0:
                bad[at] = drawn.randrange(256)
            case 1:
                bad[at : at + 4] = drawn.choice((b"\x7f\xff\xff\xff", b"\xff" * 4, bytes(4)))
            case 2:
                del bad[at + 1 :]
            case 3:
                bad[at:at] = bad[: drawn.randint(1, 64)]
            case _:
                bad[at:at] = drawn.randbytes(drawn.randint(1, 200))
    return bytes(bad)


def talk(connection: socket.socket, data: bytes) -> None:
    """Send all, and read until the broker has no more to say or waits for more."""
    connection.settimeout(0.2)
    connection.sendall(data)
    try:
        while connection.recv(65536):
            pass
    except TimeoutError:
        pass


def test_sessions_that_end_under_load_lose_and_double_nothing(secured: Secured) -> None:
    """Clients log in again every two seconds (KIP-368), while records are written and read."""
    sent, problems = 0, list[KafkaError]()
    producer = Producer({**secured.settings(), "enable.idempotence": True})
    received: list[int] = []
    is_over = threading.Event()

    def read() -> None:
        consumer = Consumer(
            {**secured.settings(), "group.id": "soak", "auto.offset.reset": "earliest"}
        )
        consumer.assign([TopicPartition("load", 0, 0)])
        try:
            deadline = time.monotonic() + REAUTHENTICATION_SECONDS + DEADLINE_S
            while time.monotonic() < deadline and not (is_over.is_set() and len(received) >= sent):
                messages = consumer.consume(500, timeout=1.0)
                received.extend(int(each.value() or b"") for each in messages if not each.error())
        finally:
            consumer.close()

    def delivered(error: KafkaError | None, _message: object) -> None:
        if error is not None:
            problems.append(error)

    secured.assert_serves()
    reader = threading.Thread(target=read)
    reader.start()
    deadline = time.monotonic() + REAUTHENTICATION_SECONDS
    while time.monotonic() < deadline:
        try:
            producer.produce("load", b"%d" % sent, partition=0, callback=delivered)
            sent += 1
        except (BufferError, KafkaException):
            producer.poll(0.1)
        producer.poll(0)
        if sent % 200 == 0:
            producer.flush(DEADLINE_S)
    assert producer.flush(DEADLINE_S) == 0
    is_over.set()
    reader.join(2 * DEADLINE_S)

    assert problems == []
    assert received == list(range(sent))
