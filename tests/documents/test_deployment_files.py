"""Dockerfile, compose, Kubernetes, Prometheus and Grafana: checked without a daemon, and run."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from millstream.config_sources import ENVIRONMENT_PREFIX, load
from millstream.metrics import DECLARED
from tests.support.documents import blocks
from tests.support.source_tree import ROOT

DEPLOY = ROOT / "deploy"
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE_FILES = [
    ROOT / "compose.yaml",
    DEPLOY / "compose.yaml",
    DEPLOY / "compose-three.yaml",
    *ROOT.glob("examples/**/compose.yaml"),
]
SERVICE_KEYS = {
    *("build", "image", "environment", "ports", "volumes", "ulimits", "read_only", "tmpfs"),
    *("cap_drop", "security_opt", "stop_grace_period", "restart", "logging", "depends_on"),
    *("command", "entrypoint", "healthcheck"),
}
SUFFIXES = ("_bucket", "_count", "_sum")
WAIT_S_MAX = 60

# YAML and JSON of any shape.
Json = Any


def manifests(file: str) -> dict[tuple[str, str], Json]:
    documents = yaml.safe_load_all((DEPLOY / file).read_text(encoding="utf-8"))
    return {(each["kind"], each["metadata"]["name"]): each for each in documents}


def instruction(name: str) -> str:
    joined = DOCKERFILE.replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.startswith(f"{name} ")][-1][len(name) :]


def image_environment() -> dict[str, str]:
    words = (word.partition("=") for word in shlex.split(instruction("ENV")))
    return {name: value for name, _, value in words}


@pytest.mark.parametrize("path", COMPOSE_FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_compose_file_is_whole(path: Path) -> None:
    compose = yaml.safe_load(path.read_text(encoding="utf-8"))

    assert {key for key in compose if not key.startswith("x-")} <= {"services", "volumes"}
    services = compose["services"]
    for name, service in services.items():
        assert set(service) <= SERVICE_KEYS, name
        assert service.get("image") or service.get("build"), name
        assert not str(service.get("image", "")).endswith(":latest") or service.get("build"), name
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:"), "a published port is on loopback"
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("."):
                assert (path.parent / source).exists(), source
            else:
                assert source in compose["volumes"], source
        assert set(service.get("depends_on", [])) <= services.keys()
        if "build" in service:
            assert (path.parent / service["build"] / "Dockerfile").exists()
            settings = service.get("environment", {})
            plain = {
                key: re.sub(r"\$\{\w+:-(.*?)\}", r"\1", value) for key, value in settings.items()
            }
            load(environment=image_environment() | plain)


def test_the_image_is_slim_and_not_root_and_runs_a_check() -> None:
    assert "FROM python:3.13-slim" in DOCKERFILE
    assert instruction("USER").strip() not in ("root", "0")
    assert json.loads(instruction("ENTRYPOINT")) == ["millstream"]
    assert "HEALTHCHECK" in DOCKERFILE


def test_the_start_command_of_the_container_serves_is_healthy_and_stops(tmp_path: Path) -> None:
    entry, command = json.loads(instruction("ENTRYPOINT")), json.loads(instruction("CMD"))
    program = Path(sys.executable).with_name(entry[0])
    kept = {k: v for k, v in os.environ.items() if not k.startswith(ENVIRONMENT_PREFIX)}
    ports = dict.fromkeys(("PORT", "FLUX_PORT", "CLASSIC_PORT", "HTTP_PORT"), "0")
    variables = image_environment() | {f"{ENVIRONMENT_PREFIX}{k}": v for k, v in ports.items()}
    # As in the image, but below a directory of the test, and on loopback.
    variables["MILLSTREAM_DATA_DIR"] = str(tmp_path / "data")
    variables["MILLSTREAM_HOST"] = "127.0.0.1"
    process = subprocess.Popen(
        [program, *command],
        env=kept | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=tmp_path,
    )
    try:
        assert process.stdout is not None
        ready = process.stdout.readline()
        address = re.search(r"kafka=(\S+:\d+)", ready)
        assert address is not None, ready
        check = json.loads(re.findall(r"CMD (\[.*\])", instruction("HEALTHCHECK"))[0])
        words = [address[1] if word == "127.0.0.1:9092" else word for word in check[1:]]
        healthy = subprocess.run([program, *words], env=kept, timeout=WAIT_S_MAX, check=False)
        assert healthy.returncode == 0
        process.send_signal(getattr(signal, instruction("STOPSIGNAL").strip()))
        assert process.wait(WAIT_S_MAX) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("file", ["kubernetes.yaml", "kubernetes-three.yaml"])
def test_the_manifests_of_kubernetes_belong_together(tmp_path: Path, file: str) -> None:
    parts = manifests(file)

    stateful = parts["StatefulSet", "millstream"]["spec"]
    pod = stateful["template"]
    labels = pod["metadata"]["labels"]
    (container,) = pod["spec"]["containers"]
    headless = parts["Service", stateful["serviceName"]]["spec"]
    assert headless["clusterIP"] == "None"
    budget = parts["PodDisruptionBudget", "millstream"]["spec"]
    assert budget["maxUnavailable"] == 1
    assert stateful["selector"]["matchLabels"] == labels == budget["selector"]["matchLabels"]
    named = {port["name"]: port["containerPort"] for port in container["ports"]}
    for (kind, _), each in parts.items():
        if kind == "Service":
            assert each["spec"]["selector"] == labels
            assert {port["targetPort"] for port in each["spec"]["ports"]} <= named.keys()
    probes = [container[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
    assert {probe["port"] for probe in probes} == {"http"}
    assert {probe["path"] for probe in probes} == {"/health/ready", "/health/live"}
    volumes = {each["name"] for each in pod["spec"]["volumes"]}
    claims = {each["metadata"]["name"] for each in stateful["volumeClaimTemplates"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes | claims
    user = re.search(r"--uid (\d+)", DOCKERFILE)
    assert user is not None
    assert pod["spec"]["securityContext"]["runAsUser"] == int(user[1])
    settings = tmp_path / "millstream.toml"
    settings.write_text(parts["ConfigMap", "millstream"]["data"]["millstream.toml"])
    variables = {
        each["name"]: each["value"].replace("$(POD_NAME)", "millstream-0")
        for each in container.get("env", [])
        if "value" in each
    }
    config = load(path=str(settings), environment=variables | {"MILLSTREAM_CONFIG": str(settings)})
    assert {config.port, config.http_port} <= set(named.values())
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(Path(config.data_dir).parent) in mounts
    assert config.advertised_host.startswith("millstream-0.millstream.")
    # Kubernetes would set MILLSTREAM_BOOTSTRAP_PORT and others, which are no settings.
    assert pod["spec"]["enableServiceLinks"] is False
    if stateful["replicas"] > 1:
        assert named["peers"] == config.peer_port
        assert config.peer_address == f"{config.advertised_host}:{config.peer_port}"


def started_pod(pod: str, tmp_path: Path) -> list[str]:
    """The words with which the script of the manifest starts a node in a pod of this name."""
    stateful = manifests("kubernetes-three.yaml")["StatefulSet", "millstream"]
    (container,) = stateful["spec"]["template"]["spec"]["containers"]
    starter = tmp_path / "start-node"
    starter.write_text('#!/bin/sh\necho "$@"\n')
    starter.chmod(0o755)
    started = subprocess.run(
        [*container["command"], *container["args"]],
        env={"POD_NAME": pod, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=WAIT_S_MAX,
    )
    return started.stdout.split()


def test_a_pod_founds_or_joins_by_its_name(tmp_path: Path) -> None:
    first, second = "millstream-0.millstream:9092", "millstream-1.millstream:9092"
    third = "millstream-2.millstream:9092"

    assert started_pod("millstream-0", tmp_path) == ["found", second, third]
    assert started_pod("millstream-1", tmp_path) == ["join", first, third]
    assert started_pod("millstream-2", tmp_path) == ["join", first, second]


class StartedNode:
    """`deploy/start-node` as a process on loopback, with a directory of its own."""

    def __init__(self, directory: Path, *words: str) -> None:
        directory.mkdir(exist_ok=True)
        programs = Path(sys.executable).parent
        kept = {k: v for k, v in os.environ.items() if not k.startswith(ENVIRONMENT_PREFIX)}
        settings = {
            "DATA_DIR": str(directory / "data"),
            "HOST": "127.0.0.1",
            "PORT": "0",
            "LISTENERS": "kafka",
        }
        self.log = directory / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [DEPLOY / "start-node", *words],
                env=kept
                | {"PATH": f"{programs}:{os.environ['PATH']}"}
                | {f"{ENVIRONMENT_PREFIX}{key}": value for key, value in settings.items()},
                cwd=directory,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def address(self) -> str:
        """Waits until it serves; lines before that are of the commands that join."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if served := re.search(r"kafka=(\S+:\d+)", line):
                return served[1]
        raise AssertionError(self.log.read_text())

    def stop(self) -> None:
        self.process.kill()
        self.process.communicate()


def test_containers_become_one_cluster_and_start_again(tmp_path: Path) -> None:
    nobody = "127.0.0.1:1"
    nodes = [StartedNode(tmp_path / "1", "found", nobody)]
    try:
        seed = nodes[0].address()
        for name in ("2", "3"):
            nodes.append(StartedNode(tmp_path / name, "join", nobody, seed))
            nodes[-1].address()
        nodes[2].stop()
        nodes[2] = StartedNode(tmp_path / "3", "join", nobody)  # It knows its cluster.
        nodes[2].address()

        command = [str(Path(sys.executable).with_name("millstream")), "cluster", "status"]
        answer = subprocess.run(
            [*command, "--bootstrap", seed, "--output", "json"],
            capture_output=True,
            text=True,
            timeout=WAIT_S_MAX,
            check=False,  # 1 while a replica catches up.
        )
        members = json.loads(answer.stdout)["nodes"]
        assert sorted(member["node_id"] for member in members) == [1, 2, 3]
    finally:
        for node in nodes:
            node.stop()


def test_alarms_and_dashboard_ask_for_metrics_that_exist() -> None:
    known = {metric.name for metric in DECLARED}
    dashboard = json.loads((DEPLOY / "grafana/dashboards/millstream.json").read_text())
    expressions = [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]]
    rules = yaml.safe_load((DEPLOY / "alerts.yml").read_text())
    expressions += [rule["expr"] for group in rules["groups"] for rule in group["rules"]]

    asked = {name for text in expressions for name in re.findall(r"millstream_\w+", text)}
    plain = {re.sub(f"({'|'.join(SUFFIXES)})$", "", name) for name in asked}
    assert plain - known == set()
    places = [tuple(panel["gridPos"][key] for key in "xy") for panel in dashboard["panels"]]
    assert len(places) == len(set(places)), "no panel covers another"
    sources = yaml.safe_load(
        (DEPLOY / "grafana/provisioning/datasources/prometheus.yml").read_text()
    )
    assert {panel["datasource"]["uid"] for panel in dashboard["panels"]} == {
        source["uid"] for source in sources["datasources"]
    }


def test_the_alarms_are_those_of_the_page() -> None:
    page = blocks((ROOT / "docs" / "deploy.md").read_text(encoding="utf-8"), "yaml")
    shown = [yaml.safe_load(text) for text in page]

    assert yaml.safe_load((DEPLOY / "alerts.yml").read_text()) in shown
