"""Kafka's command line tools, by the names of their scripts, each in a process of its own."""

import json
import subprocess
from dataclasses import dataclass
from typing import Any

from tests.interop.java.releases import Release

TOOL_SECONDS_MAX = 90
TOOLS = "org.apache.kafka.tools"
# The main class behind each script, as the scripts of the newest release name it.
MAINS = {
    "acls": f"{TOOLS}.AclCommand",
    "broker-api-versions": f"{TOOLS}.BrokerApiVersionsCommand",
    "cluster": f"{TOOLS}.ClusterTool",
    "configs": "kafka.admin.ConfigCommand",
    "console-consumer": f"{TOOLS}.consumer.ConsoleConsumer",
    "console-producer": f"{TOOLS}.ConsoleProducer",
    "consumer-groups": f"{TOOLS}.consumer.group.ConsumerGroupCommand",
    "consumer-perf-test": f"{TOOLS}.ConsumerPerformance",
    "delete-records": f"{TOOLS}.DeleteRecordsCommand",
    "features": f"{TOOLS}.FeatureCommand",
    "get-offsets": f"{TOOLS}.GetOffsetShell",
    "log-dirs": f"{TOOLS}.LogDirsCommand",
    "client-metrics": f"{TOOLS}.ClientMetricsCommand",
    "metadata-quorum": f"{TOOLS}.MetadataQuorumCommand",
    "reassign-partitions": f"{TOOLS}.reassign.ReassignPartitionsCommand",
    "producer-perf-test": f"{TOOLS}.ProducerPerformance",
    "topics": f"{TOOLS}.TopicCommand",
    "transactional-message-copier": f"{TOOLS}.TransactionalMessageCopier",
    "transactions": f"{TOOLS}.TransactionsCommand",
    "verifiable-consumer": f"{TOOLS}.VerifiableConsumer",
    "verifiable-producer": f"{TOOLS}.VerifiableProducer",
}
# Where they stood in 3.x, and what their options were called.
OLDER_MAINS = {
    "acls": "kafka.admin.AclCommand",
    "broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "console-producer": "kafka.tools.ConsoleProducer",
}
OLDER_OPTIONS = {
    "--reader-property": "--property",
    "--formatter-property": "--property",
    "--command-property": "--producer-props",
    "--num-records": "--messages",
}
OLDER_OPTION_TOOLS = {
    "--num-records": {"consumer-perf-test"},
    "--command-property": {"producer-perf-test"},
}


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of one release. Options are those of 4.x."""

    release: Release
    address: str

    def run(self, name: str, *options: str, text: str = "") -> str:
        """What it prints; to fail, or to take too long, is a failure of the test."""
        done = self.start(name, *options, text=text)
        assert done.returncode == 0, f"{name}: {done.stdout}{done.stderr}"
        return done.stdout

    def refused(self, name: str, *options: str) -> str:
        done = self.start(name, *options)
        assert done.returncode != 0, f"{name}: {done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    def events(self, name: str, *options: str) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.run(name, *options).splitlines()]

    def start(self, name: str, *options: str, text: str = "") -> "subprocess.CompletedProcess[str]":
        main = MAINS[name]
        if self.release.line == "3.x":
            main = OLDER_MAINS.get(name, main)
            options = tuple(older(name, option) for option in options)
        return subprocess.run(
            [*self.release.tool_command(main), *options],
            input=text,
            capture_output=True,
            encoding="utf-8",
            timeout=TOOL_SECONDS_MAX,
            check=False,
        )

    def ask(self, name: str, *options: str, text: str = "") -> str:
        """As `run`, of a tool that takes the broker by the option most of them have."""
        return self.run(name, "--bootstrap-server", self.address, *options, text=text)


def older(name: str, option: str) -> str:
    if name not in OLDER_OPTION_TOOLS.get(option, {name}):
        return option
    return OLDER_OPTIONS.get(option, option)
