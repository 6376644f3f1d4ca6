"""The secure step of the tour: `millstream serve --secure`, an order through it, a guess refused.

Owns a second broker, whose data is temporary: certificates, a password and a key are made anew.
"""

import tempfile
import time
from pathlib import Path
from typing import Any

from millstream.client import Unreachable, connect
from millstream.config import Config
from millstream.demo import events, orders
from millstream.demo.failures import DemoFailed
from millstream.testing.process import Subprocess

GUESS = "millstream"
WAIT_SECONDS_MAX = 30.0


def show() -> events.Secured:
    """Write an order as the first user, look for it on the disk, and try a wrong password."""
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="millstream-demo-") as name:
        data = Path(name) / "broker"
        broker = Subprocess(
            Config(data_dir=str(data), port=0, listeners=("kafka",)),
            Path(name) / "broker.log",
            is_spared_signals=True,
            is_secure=True,
        )
        try:
            broker.start()
            _use(broker, data)
        except RuntimeError as problem:
            raise DemoFailed(str(problem)) from problem
        finally:
            broker.kill()
    return events.Secured(seconds=time.perf_counter() - started)


def _use(broker: Subprocess, data: Path) -> None:
    address = f"{broker.host}:{broker.port}"
    settings: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_username": "admin",
        "ssl_ca_location": str(data / "tls" / "ca.pem"),
    }
    password = (data / "initial-admin-password").read_text(encoding="utf-8").strip()
    order = orders.order(0)
    with connect(address, sasl_password=password, wait_s=WAIT_SECONDS_MAX, **settings) as client:
        client.admin.create_topic(orders.ORDERS, partitions=1)
        with client.producer() as producer:
            producer.send(orders.ORDERS, order)
    if any(order.encode() in file.read_bytes() for file in data.rglob("*.log")):
        raise DemoFailed("the order lies on the disk in clear")
    try:
        with connect(address, sasl_password=GUESS, **settings):
            raise DemoFailed("a wrong password was taken")
    except Unreachable:
        return
