"""`run_broker(secure=True)`: TLS and a login, with what a client needs for them."""

import time
from typing import Any

import pytest

from millstream.client import ClientError, connect
from millstream.testing import run_broker


def test_a_secure_broker_serves_who_logs_in_and_no_one_else() -> None:
    with run_broker(secure=True) as broker:
        settings: dict[str, Any] = dict(broker.client_settings)
        address = settings.pop("bootstrap.servers")
        with connect(address, **settings) as client:
            client.users.create("ann", "anns password", roles=["consumer"])
            client.produce("orders", b"x")
            who, users = client.users.who_am_i(), client.users.list()
            deadline = time.monotonic() + 10
            while not client.audit.query(events=["user.create"], search="ann"):
                assert time.monotonic() < deadline, "the trail is kept without being asked for"
                time.sleep(0.1)
        ann = settings | {"sasl.username": "ann", "sasl.password": "anns password"}
        with connect(address, **ann) as client:
            as_ann = client.users.who_am_i()
            client.users.set_password("ann", "another", old="anns password")
        with pytest.raises(ClientError):
            connect(address, timeout_s=1.5)

    assert (who.principal, who.roles, who.is_tls) == ("User:admin", ("admin",), True)
    assert [user.name for user in users] == ["admin", "ann"]
    assert (as_ann.principal, as_ann.mechanism) == ("User:ann", "SCRAM-SHA-512")
