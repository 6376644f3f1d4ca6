"""The cluster page on three real nodes: nodes, map, moves by plan, draining; a node that dies."""

import re
from collections.abc import Iterator
from pathlib import Path
from time import monotonic, sleep

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect

from millstream.config import Config
from millstream.testing.cluster import ClusterProcesses, running_cluster
from tests.support.http import HttpClient

CONFIG = Config(
    port=0, flux_port=0, classic_port=0, http_port=0, node_id=1, listeners=("kafka", "http")
)
WAIT_MS = 60_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterProcesses]:
    directory: Path = tmp_path_factory.mktemp("three")
    with running_cluster(CONFIG, directory) as running:
        yield running


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    with browser.new_context(viewport={"width": 1440, "height": 1200}) as opened:
        opened.set_default_timeout(WAIT_MS)
        expect.set_options(timeout=WAIT_MS)
        yield opened


def ask(cluster: ClusterProcesses) -> HttpClient:
    return HttpClient(cluster.nodes[1].config.http_port, cluster.nodes[1].host)


def test_nodes_are_seen_moved_to_drained_and_lost(
    context: BrowserContext, cluster: ClusterProcesses
) -> None:
    http = ask(cluster)
    _create(http, "spread", partitions=3, replicas=3)
    _create(http, "alone", partitions=1, replicas=1)
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{http.port}/console/cluster")

    expect(page.get_by_text("3 of 3 nodes up")).to_be_visible()
    for node in (1, 2, 3):
        expect(page.get_by_role("heading", name=f"Node {node}", exact=True)).to_be_visible()
    row = page.get_by_role("table", name="Partitions by node").get_by_role("row")
    squares = row.filter(has_text="spread").get_by_role("img")
    expect(squares).to_have_count(3)
    expect(squares.first).to_have_attribute("aria-label", re.compile("leader|in step"))

    _move(page, http)
    _drain(page, http)
    cluster.kill(3)
    expect(page.get_by_text("Node 3 cannot be reached from here.")).to_be_visible()


def _create(http: HttpClient, name: str, **places: int) -> None:
    """Create a topic, once the control log has a leader: an election may be under way."""
    deadline, may_exist = monotonic() + WAIT_MS / 1000, False
    while True:
        answer = http.post("/v1/topics", {"name": name, **places})
        if answer.status == 201 or (may_exist and answer.status == 409):
            return
        assert answer.status == 503, answer.text
        assert monotonic() < deadline, answer.text
        may_exist = True
        sleep(0.1)


def _replicas(http: HttpClient, topic: str) -> list[int]:
    placed = http.get("/v1/cluster/partitions?limit=1000").json["items"]
    (replicas,) = [each["replicas"] for each in placed if each["topic"] == topic]
    assert isinstance(replicas, list)
    return replicas


def _move(page: Page, http: HttpClient) -> None:
    target = _replicas(http, "alone")[0] % 3 + 1
    page.get_by_role("button", name="Move a partition…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Topic").fill("alone")
    dialog.get_by_label("Nodes that hold it").fill("99")
    expect(dialog.get_by_role("alert")).to_contain_text("99")
    dialog.get_by_label("Nodes that hold it").fill(str(target))
    plan = dialog.get_by_role("table", name="Plan")
    expect(plan).to_contain_text("alone/0")
    dialog.get_by_role("button", name="Move 1 partition").click()
    expect(dialog).to_have_count(0)
    until = monotonic() + WAIT_MS / 1000
    while _replicas(http, "alone") != [target]:
        assert monotonic() < until, "the move does not end"
        sleep(0.05)
    row = page.get_by_role("table", name="Partitions by node").get_by_role("row")
    cells = row.filter(has_text="alone").get_by_role("img")
    for node in (1, 2, 3):
        is_there = re.compile("leader|in step" if node == target else "not here")
        expect(cells.nth(node - 1)).to_have_attribute("aria-label", is_there)


def _drain(page: Page, http: HttpClient) -> None:
    page.get_by_role("button", name="Acts on node 2").click()
    page.get_by_role("menuitem", name="Drain…").click()
    page.get_by_role("button", name="Drain node 2").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.locator(".node").nth(1)).to_contain_text("draining")
    assert http.get("/v1/nodes/2").json["state"] == "draining"
    page.get_by_role("button", name="Acts on node 2").click()
    page.get_by_role("menuitem", name="Take back…").click()
    page.get_by_role("button", name="Take node 2 back").click()
    expect(page.locator(".node").nth(1)).not_to_contain_text("draining")
