"""Kafka's command line tools do their work, and print what they print with Kafka."""

import json
from pathlib import Path

import pytest

from tests.interop.java.clients import Java
from tests.interop.java.releases import Release
from tests.interop.java.tools import Tools
from tests.interop.samples import Sample, samples
from tests.support.broker_process import BrokerProcess


@pytest.fixture
def tools(release: Release, broker: BrokerProcess) -> Tools:
    return Tools(release, broker.address)


def rows(table: str) -> list[list[str]]:
    return [line.split() for line in table.splitlines() if line.strip()]


def test_topics_are_created_listed_altered_described_and_deleted(tools: Tools, topic: str) -> None:
    settings = ["--partitions", "2", "--config", "retention.ms=60000"]
    created = tools.ask("topics", "--create", "--topic", topic, *settings)
    listed = tools.ask("topics", "--list")
    tools.ask("topics", "--alter", "--topic", topic, "--partitions", "3")
    described = tools.ask("topics", "--describe", "--topic", topic)
    tools.ask("topics", "--delete", "--topic", topic)
    server = ["--bootstrap-server", tools.address]
    refused = tools.refused("topics", *server, "--describe", "--topic", topic)

    assert f"Created topic {topic}." in created
    assert topic in listed.split()
    assert "PartitionCount: 3\tReplicationFactor: 1\tConfigs: retention.ms=60000" in described
    assert described.count("Leader: 1\tReplicas: 1\tIsr: 1") == 3
    assert "does not exist" in refused


def test_the_console_writes_and_reads(tools: Tools, topic: str, group: str) -> None:
    separated = ["--reader-property", "parse.key=true", "--reader-property", "key.separator=:"]
    tools.ask("console-producer", "--topic", topic, *separated, text="a:1\nb:2\nc:schlüssel\n")
    shown = [
        *("--formatter-property", "print.key=true"),
        *("--formatter-property", "print.timestamp=true"),
    ]
    read = tools.ask(
        *("console-consumer", "--topic", topic, "--group", group, "--from-beginning"),
        *("--max-messages", "3", "--timeout-ms", "30000", *shown),
    )

    lines = sorted(line.split("\t")[1:] for line in read.splitlines())
    assert lines == [["a", "1"], ["b", "2"], ["c", "schlüssel"]]
    assert all(line.startswith("CreateTime:") for line in read.splitlines())


def test_settings_are_altered_and_described(tools: Tools, java: Java, topic: str) -> None:
    with java.admin(tools.address) as admin:
        admin.ask("create_topic", topic=topic)
    entity = ["--entity-type", "topics", "--entity-name", topic]

    tools.ask("configs", "--alter", *entity, "--add-config", "retention.ms=1000")
    described = tools.ask("configs", "--describe", *entity)
    brokers = ["--entity-type", "brokers", "--entity-name", "1"]
    all_of_broker = tools.ask("configs", "--describe", "--all", *brokers)

    assert "retention.ms=1000 sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:" in described
    assert "message.max.bytes=1048588" in all_of_broker


def test_groups_are_listed_described_reset_and_deleted(
    tools: Tools, java: Java, topic: str, group: str
) -> None:
    java.write(tools.address, topic, samples())
    with java.consumer(tools.address, group_id=group, client_id="reader") as consumer:
        consumer.ask("subscribe", topic=topic)
        consumer.take(len(samples()))
        consumer.ask("commit")
        described = tools.ask("consumer-groups", "--describe", "--group", group)
        members = tools.ask("consumer-groups", "--describe", "--group", group, "--members")
    state = tools.ask("consumer-groups", "--describe", "--group", group, "--state")
    reset = tools.ask(
        *("consumer-groups", "--reset-offsets", "--group", group, "--topic", f"{topic}:0"),
        *("--shift-by", "-2", "--execute"),
    )
    listed = tools.ask("consumer-groups", "--list", "--state")
    tools.ask("consumer-groups", "--delete", "--group", group)

    end = str(len(samples()))
    (read,) = (row for row in rows(described) if row[:3] == [group, topic, "0"])
    assert (read[3:6], read[-1]) == ([end, end, "0"], "reader")
    assert [row[-2:] for row in rows(members) if row[0] == group] == [["reader", "3"]]
    assert [row[-2:] for row in rows(state) if row[0] == group] == [["Empty", "0"]]
    assert [group, topic, "0", str(len(samples()) - 2)] in [
        row[at : at + 4] for row in rows(reset) for at in range(len(row))
    ]
    assert [row[-1] for row in rows(listed) if row[0] == group] == ["Empty"]
    assert group not in tools.ask("consumer-groups", "--list").split()


def test_offsets_are_told_before_and_after_records_are_deleted(
    tools: Tools, java: Java, topic: str, tmp_path: Path
) -> None:
    java.write(tools.address, topic, samples())
    request = tmp_path / "offsets.json"
    partitions = [{"topic": topic, "partition": 0, "offset": 4}]
    request.write_text(json.dumps({"partitions": partitions, "version": 1}), encoding="utf-8")

    deleted = tools.ask("delete-records", "--offset-json-file", str(request))
    latest = tools.ask("get-offsets", "--topic", topic)
    earliest = tools.ask("get-offsets", "--topic", topic, "--time", "earliest")

    assert f"partition: {topic}-0\tlow_watermark: 4" in deleted
    assert latest.split() == [f"{topic}:0:{len(samples())}", f"{topic}:1:0", f"{topic}:2:0"]
    assert earliest.split() == [f"{topic}:0:4", f"{topic}:1:0", f"{topic}:2:0"]


def test_the_cluster_tells_its_id_its_apis_its_features_and_its_sizes(
    tools: Tools, java: Java, topic: str
) -> None:
    java.write(tools.address, topic, samples())
    with java.admin(tools.address) as admin:
        cluster = admin.ask("describe_cluster")["id"]

    identity = tools.run("cluster", "cluster-id", "--bootstrap-server", tools.address)
    apis = tools.ask("broker-api-versions")
    features = tools.ask("features", "describe")
    sizes = json.loads(tools.ask("log-dirs", "--describe", "--topic-list", topic).splitlines()[-1])

    assert identity.split() == ["Cluster", "ID:", cluster]
    assert f"{tools.address} (id: 1" in apis
    assert "Fetch(1): 4 to" in apis
    assert "Feature: transaction.version" in features
    assert "Feature: metadata.version" in features
    assert "share.version" not in features
    (directory,) = sizes["brokers"][0]["logDirs"]
    collected = {replica["partition"]: replica["size"] for replica in directory["partitions"]}
    assert collected[f"{topic}-0"] > 0
    assert collected[f"{topic}-1"] == 0


def test_throughput_is_measured(tools: Tools, topic: str) -> None:
    server = f"bootstrap.servers={tools.address}"
    wrote = tools.run(
        *("producer-perf-test", "--topic", topic, "--num-records", "5000"),
        *("--record-size", "100", "--throughput", "-1", "--command-property", server),
    )
    read = tools.ask("consumer-perf-test", "--topic", topic, "--num-records", "5000")

    assert "5000 records sent" in wrote
    assert int(read.splitlines()[-1].split(", ")[4]) == 5000


def test_the_verifiable_clients_agree(tools: Tools, topic: str, group: str) -> None:
    server = ["--bootstrap-server", tools.address, "--topic", topic]
    wrote = tools.events("verifiable-producer", *server, "--max-messages", "200")
    settings = ["--group-id", group, "--reset-policy", "earliest", "--max-messages", "200"]
    read = tools.events("verifiable-consumer", *server, *settings)

    totals = wrote[-1]
    assert (totals["name"], totals["sent"], totals["acked"]) == ("tool_data", 200, 200)
    assert sum(figure["count"] for figure in read if figure["name"] == "records_consumed") == 200
    commits = [record["success"] for record in read if record["name"] == "offsets_committed"]
    assert commits
    assert all(commits)


def test_a_copier_moves_each_record_once_in_transactions(
    tools: Tools, java: Java, topic: str, group: str
) -> None:
    """Consume, produce and commit the offset in one transaction, some of them aborted."""
    sent = [Sample(None, b"%d" % number, [], -1) for number in range(100)]
    java.write(tools.address, topic, sent)
    copy = f"{topic}-copy"

    events = tools.events(
        "transactional-message-copier",
        *("--broker-list", tools.address, "--input-topic", topic, "--input-partition", "0"),
        *("--output-topic", copy, "--consumer-group", group, "--max-messages", "100"),
        *("--transaction-size", "10", "--transactional-id", f"copier-{topic}"),
        "--enable-random-aborts",
    )
    with java.consumer(tools.address, isolation_level="read_committed") as consumer:
        consumer.assign(copy, 0, 1, 2)
        taken = consumer.drain()

    assert int(events[-1]["remaining"]) == 0
    assert sorted(int(record.sample.value or b"") for record in taken) == list(range(100))


def test_transactions_are_listed_and_described(tools: Tools, java: Java, topic: str) -> None:
    server = ["--bootstrap-server", tools.address]
    with java.producer(tools.address, transactional_id=f"listed-{topic}") as producer:
        producer.ask("init")
        producer.ask("begin")
        producer.send(topic, samples())
        listed = tools.run("transactions", *server, "list")
        described = tools.run(
            "transactions", *server, "describe", "--transactional-id", f"listed-{topic}"
        )
        producers = tools.run(
            *("transactions", *server, "describe-producers", "--topic", topic),
            *("--partition", "0"),
        )
        producer.ask("commit")

    (row,) = (row for row in rows(listed) if row[0] == f"listed-{topic}")
    assert row[-1] == "Ongoing"
    (row,) = (row for row in rows(described) if f"listed-{topic}" in row)
    assert (row[0], row[4], row[-1]) == ("1", "Ongoing", f"{topic}-0")
    assert len(rows(producers)) == 2
    assert rows(producers)[1][-1] == "0"


def test_nodes_groups_and_loggers_are_altered_as_they_run(tools: Tools, group: str) -> None:
    if tools.release.line == "3.x":
        pytest.skip("the tools of 3.x know no settings of groups")
    node = ["--entity-type", "brokers", "--entity-name", "1"]
    readers = ["--entity-type", "groups", "--entity-name", group]
    loggers = ["--entity-type", "broker-loggers", "--entity-name", "1"]

    tools.ask("configs", "--alter", *node, "--add-config", "log.retention.ms=123456")
    altered = tools.ask("configs", "--describe", *node)
    tools.ask("configs", "--alter", *node, "--delete-config", "log.retention.ms")
    tools.ask("configs", "--alter", *readers, "--add-config", "consumer.session.timeout.ms=50000")
    of_group = tools.ask("configs", "--describe", *readers)
    level = "millstream.server.node=DEBUG"
    tools.ask("configs", "--alter", *loggers, "--add-config", level)
    levels = tools.ask("configs", "--describe", *loggers)
    refused = tools.refused(
        *("configs", "--bootstrap-server", tools.address, "--alter", *node),
        *("--add-config", "num.partitions=7"),
    )

    assert "log.retention.ms=123456" in altered
    assert "consumer.session.timeout.ms=50000" in of_group
    assert level in levels
    assert "num.partitions cannot be altered" in refused


def test_client_metrics_are_altered_listed_and_described(tools: Tools) -> None:
    if tools.release.line == "3.x":
        pytest.skip("the tools of 3.x ask in another way")
    tools.ask("client-metrics", "--alter", "--name", "all", "--interval", "5000")

    assert "all" in tools.ask("client-metrics", "--list").split()
    assert "interval.ms=5000" in tools.ask("client-metrics", "--describe", "--name", "all")


def test_the_quorum_is_described(tools: Tools) -> None:
    status = tools.ask("metadata-quorum", "describe", "--status")
    replication = tools.ask("metadata-quorum", "describe", "--replication")

    status_lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    assert status_lines["LeaderId"].split() == ["1"]
    assert status_lines["MaxFollowerLag"].split() == ["0"]
    assert replication.splitlines()[1].split()[0] == "1"
    assert "Leader" in replication


def test_a_reassignment_is_throttled_and_verified(
    tools: Tools, java: Java, topic: str, tmp_path: Path
) -> None:
    with java.admin(tools.address) as admin:
        admin.ask("create_topic", topic=topic)
    plan = tmp_path / "plan.json"
    part = {"topic": topic, "partition": 0, "replicas": [1]}
    plan.write_text(json.dumps({"version": 1, "partitions": [part]}))
    expected = ["--reassignment-json-file", str(plan)]

    tools.ask("reassign-partitions", "--execute", "--throttle", "1000000", *expected)
    verified = tools.ask("reassign-partitions", "--verify", *expected)

    assert f"Reassignment of partition {topic}-0 is completed" in verified
    assert "Clearing broker-level throttles on broker 1" in verified
    assert f"Clearing topic-level throttles on topic {topic}" in verified
