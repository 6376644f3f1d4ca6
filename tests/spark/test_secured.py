"""Source and sink against a broker with TLS, SCRAM and ACLs, as docs/spark/secured.md has it."""

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from millstream.client import Client, connect
from millstream.testing import RunningBroker, run_broker
from tests.cli.conftest import Cli, environment
from tests.support.documents import blocks
from tests.support.source_tree import ROOT

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PASSWORD = "a password of spark"
PAGE = ROOT / "docs" / "spark" / "secured.md"


class Secured:
    """A broker, a client of its administrator, and the options of Spark for any user."""

    def __init__(self, broker: RunningBroker, client: Client) -> None:
        self.broker = broker
        self.client = client

    def options(self, user: str, password: str = PASSWORD) -> dict[str, str]:
        settings = self.broker.client_settings
        return {
            "kafka.bootstrap.servers": settings["bootstrap.servers"],
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": f'{SCRAM} required username="{user}" password="{password}";',
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": settings["ssl.ca.location"],
        }


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with run_broker(secure=True) as broker:
        settings: dict[str, Any] = dict(broker.client_settings)
        with connect(settings.pop("bootstrap.servers"), **settings) as client:
            for topic in ("grain", "flour"):
                client.admin.create_topic(topic, partitions=2)
            client.users.create("spark", PASSWORD, roles=["producer", "consumer"])
            client.users.create("guest", PASSWORD)
            yield Secured(broker, client)


def copy(spark: SparkSession, options: dict[str, str], checkpoint: Path) -> None:
    source = spark.readStream.format("millstream").options(**options, subscribe="grain")
    grain = source.option("startingOffsets", "earliest").load()
    sink = grain.writeStream.format("millstream").options(**options, topic="flour")
    query = sink.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()


def test_rows_are_written_streamed_and_read(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    options = secured.options("spark")
    rows = spark.createDataFrame([(b"%d" % number,) for number in range(20)], "value binary")
    rows.write.format("millstream").options(**options, topic="grain").mode("append").save()

    copy(spark, options, tmp_path)

    flour = spark.read.format("millstream").options(**options, subscribe="flour").load()
    values = sorted(int(bytes(row.value)) for row in flour.collect())
    assert values == list(range(20))


def read(spark: SparkSession, options: dict[str, str]) -> None:
    spark.read.format("millstream").options(**options, subscribe="grain").load().collect()


def write(spark: SparkSession, options: dict[str, str]) -> None:
    rows = spark.createDataFrame([(b"x",)], "value binary")
    rows.write.format("millstream").options(**options, topic="grain").mode("append").save()


@pytest.mark.parametrize("act", [read, write])
@pytest.mark.parametrize(
    ("user", "password", "reason"),
    [
        ("spark", "another password", "(?i)authentication failed|credentials"),
        ("guest", PASSWORD, "(?i)may not|authorization|denied"),
    ],
)
def test_a_wrong_password_and_a_missing_right_are_named(
    spark: SparkSession,
    secured: Secured,
    user: str,
    password: str,
    reason: str,
    act: Callable[[SparkSession, dict[str, str]], None],
) -> None:
    with pytest.raises(PySparkException, match=reason) as problem:
        act(spark, secured.options(user, password))

    assert password not in str(problem.value)


def test_the_rights_of_the_page_are_enough_for_a_copy(
    spark: SparkSession, secured: Secured, tmp_path: Path
) -> None:
    (commands,) = blocks(PAGE.read_text(encoding="utf-8"), "sh")
    settings = dict(secured.broker.client_settings)
    password = tmp_path / "spark.password"
    password.write_text(PASSWORD)
    password.chmod(0o600)
    connected = ["--bootstrap", settings.pop("bootstrap.servers")]
    connected += [word for pair in settings.items() for word in ("-X", "=".join(pair))]
    cli = Cli(environment(tmp_path))
    for command in commands.replace("User:spark", "User:copier").splitlines():
        words = command.replace("create spark", "create copier")
        arguments = shlex.split(words.replace("spark.password", str(password)))
        cli.text(*arguments[1:], *connected)

    copy(spark, secured.options("copier"), tmp_path / "checkpoint")
