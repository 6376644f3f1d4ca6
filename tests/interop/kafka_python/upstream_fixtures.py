"""Takes the place of `test/integration/fixtures.py` of kafka-python's own suite: brokers are ours.

Names and arguments are those of the file that it replaces.
"""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from kafka import KafkaAdminClient
from millstream.server.system.dev_certificates import make_dev_certificates
from tests.support.broker_process import BrokerProcess

USER, PASSWORD = "alice", "alice-secret"
PROTOCOLS = {
    "PLAINTEXT": "plaintext",
    "SSL": "tls",
    "SASL_PLAINTEXT": "sasl_plaintext",
    "SASL_SSL": "sasl_tls",
}


class ZookeeperFixture:
    """There is none; the suite imports the name."""


class KafkaFixture:
    zookeeper = None
    replicas = 1

    @classmethod
    def instance(cls, broker_id: int, **params: Any) -> "KafkaFixture":
        broker = cls(**params)
        broker.start()
        return broker

    def __init__(
        self,
        *,
        transport: str = "PLAINTEXT",
        sasl_mechanism: str | None = None,
        partitions: int = 2,
        **_others: Any,
    ) -> None:
        self.partitions = partitions
        self.transport = transport
        self.sasl_mechanism = sasl_mechanism
        self.child = self
        self._home = Path(tempfile.mkdtemp())
        self.ssl_dir = str(self._home / "tls")
        make_dev_certificates(self._home / "tls")
        shutil.copy(self._home / "tls" / "ca.pem", self._home / "tls" / "ca-cert")
        password = self._home / "password"
        password.touch(mode=0o600)
        password.write_text(PASSWORD, encoding="utf-8")
        self._process = BrokerProcess(
            self._home,
            DEFAULT_PARTITIONS=partitions,
            TIMING__GROUP_INITIAL_REBALANCE_DELAY_MS=100,
            SECURITY__PROTOCOL=PROTOCOLS[transport],
            SECURITY__AUTHORIZATION="on",
            SECURITY__ADMIN_USER=USER,
            SECURITY__ADMIN_PASSWORD=f"file:{password}",
            SECURITY__SUPER_USERS="User:ANONYMOUS",
            TLS__CERTIFICATE=self._home / "tls" / "server.pem",
            TLS__KEY=self._home / "tls" / "server.key",
        )

    @property
    def port(self) -> int:
        return self._process.port

    def bootstrap_server(self) -> str:
        return f"localhost:{self.port}"

    def start(self) -> None:
        if not self._process.is_running:
            self._process.start()

    def close(self) -> None:
        if self._process.is_running:
            self._process.kill()
        shutil.rmtree(self._home, ignore_errors=True)

    def dump_logs(self) -> None:
        print(self._process.log)

    def get_topic_names(self) -> list[str]:
        with KafkaAdminClient(**self._enrich_client_params({})) as admin:
            return list(admin.list_topics())

    def _enrich_client_params(self, params: dict[str, Any], **defaults: Any) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_server(),
            "security_protocol": self.transport,
        }
        if self.sasl_mechanism is not None:
            settings |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": USER,
                "sasl_plain_password": PASSWORD,
            }
        if "SSL" in self.transport:
            settings |= {"ssl_cafile": f"{self.ssl_dir}/ca-cert", "ssl_check_hostname": False}
        return {**settings, **defaults, **params}


def client_params(broker: KafkaFixture, client_id: str = "client", **others: Any) -> dict[str, Any]:
    return broker._enrich_client_params(others, client_id=client_id)


def create_topics(
    broker: KafkaFixture,
    topic_names: list[str],
    num_partitions: int | None = None,
    replication_factor: int | None = None,
) -> None:
    count = broker.partitions if num_partitions is None else num_partitions
    topics = {name: {"num_partitions": count, "replication_factor": 1} for name in topic_names}
    with KafkaAdminClient(**broker._enrich_client_params({})) as admin:
        admin.create_topics(topics, wait_for_metadata=True)
