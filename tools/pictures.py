"""Makes the pictures of the documents: `make pictures`.

Runs the real commands, the real explorer and the real console, and writes what they show to
docs/pictures. The console needs a Chromium on the path.
"""

import asyncio
import io
import json
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, time

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text
from tests.support.http import HttpClient, HttpNode, http_node

from millstream.cli.explorer.app import Explorer
from millstream.client import connect
from millstream.config import Config
from millstream.testing import run_broker
from millstream.testing.cluster import running_cluster

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
DEMO = "millstream demo --once --no-spark"
DEMO_COLUMNS = 92
EXPLORER_SIZE = (100, 28)
ORDERS = [("ann", "flour", 25), ("dan", "rye", 5), ("eve", "oats", 12), ("ann", "spelt", 7)]
SHOWN_S_MAX = 120.0
BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome")
CLUSTER = Config(port=0, http_port=0, listeners=("kafka", "http"))
CONSOLE_SHOWN_MS = 6_000  # Two rounds of figures.


def demo() -> None:
    """The demonstration as it is printed, in a directory without a name of this machine."""
    with TemporaryDirectory() as directory:
        command = [sys.executable, "-m", *DEMO.split(), "--data-dir", "data"]
        printed = subprocess.run(
            command, cwd=directory, capture_output=True, text=True, check=True, timeout=300
        ).stdout.replace(f"{directory}/", "")
    console = Console(record=True, width=DEMO_COLUMNS, file=io.StringIO(), highlight=False)
    console.print(Text(f"$ {DEMO} --data-dir data", style="bold green"))
    console.print(Text(printed.rstrip()))
    console.save_svg(str(PICTURES / "demo.svg"), title="millstream demo", unique_id="demo")


async def explorer() -> None:
    """The first screen, a topic's records and a group of `millstream explore`."""
    with run_broker() as broker, connect(broker.bootstrap) as client:
        client.admin.create_topic("orders", partitions=2)
        client.admin.create_topic("payments")
        for number in range(40):
            customer, item, kg = ORDERS[number % len(ORDERS)]
            order = {"id": number, "customer": customer, "item": item, "kg": kg}
            client.produce("orders", json.dumps(order), key=customer)
        with client.consumer("orders", group="billing") as consumer:
            consumer.take(30)

        app = Explorer(client, None)
        async with app.run_test(size=EXPLORER_SIZE) as pilot:

            async def show(name: str, text: str, *keys: str) -> None:
                await pilot.press(*keys)
                await _until(lambda: text in _screen(app), pilot.pause)
                (PICTURES / f"{name}.svg").write_text(
                    app.export_screenshot(title="millstream explore"), encoding="utf-8"
                )

            await show("explore-topics", "payments")
            await show("explore-records", "spelt", "enter")
            await show("explore-groups", "billing", "escape", "g")
        app.session.close()


def console() -> None:
    """The overview, a topic's records and three nodes, in a browser."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        raise SystemExit("no Chromium on the path: the pictures of the console stay as they are")
    with (
        http_node() as node,
        TemporaryDirectory() as directory,
        running_cluster(CLUSTER, Path(directory)) as cluster,
        sync_playwright() as playwright,
    ):
        fill(node)
        first = HttpClient(cluster.nodes[1].config.http_port, cluster.nodes[1].host)
        for name, partitions in (("orders", 12), ("payments", 12), ("mails", 6)):
            topic = {"name": name, "partitions": partitions, "replicas": 3}
            assert first.post("/v1/topics", topic).status == 201
        browser = playwright.chromium.launch(executable_path=path)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        for name, port, address in (
            ("console-overview", node.ask.port, "/console/"),
            ("console-records", node.ask.port, "/console/topics/orders?at=0@10"),
            ("console-cluster", first.port, "/console/cluster"),
        ):
            if name == "console-cluster":
                page.emulate_media(color_scheme="dark")
            page.goto(f"http://127.0.0.1:{port}{address}")
            page.wait_for_timeout(CONSOLE_SHOWN_MS)
            page.screenshot(path=PICTURES / f"{name}.png")
        browser.close()


def fill(node: HttpNode) -> None:
    """Orders of three days, more by day than by night, and a group that read most of them."""
    address = node.broker.bootstrap
    with connect(address) as client:
        for name in ("orders", "payments", "mails"):
            client.admin.create_topic(name, partitions=3)
        now_ms = int(time() * 1000)
        for hour in range(72, 0, -1):
            at = datetime.fromtimestamp(now_ms / 1000 - hour * 3_600, UTC)
            orders = [_order(hour, number, at) for number in range(8 + 4 * abs(at.hour - 12) % 40)]
            answer = node.ask.post("/v1/topics/orders/records", {"records": orders})
            assert answer.status == 200, answer.text
        with client.consumer("orders", group="billing") as consumer:
            consumer.take(1_000)


def _order(hour: int, number: int, at: datetime) -> dict[str, object]:
    customer, item, kg = ORDERS[number % len(ORDERS)]
    order = {"id": hour * 100 + number, "customer": {"name": customer}, "item": item, "kg": kg}
    time_text = (at + timedelta(seconds=60 * number)).isoformat(timespec="milliseconds")
    return {"key": customer, "value": {"json": order}, "timestamp": time_text}


def _screen(app: Explorer) -> str:
    return app.export_screenshot().replace("&#160;", " ")


async def _until(is_shown: Callable[[], bool], pause: Callable[[float], Awaitable[None]]) -> None:
    deadline = monotonic() + SHOWN_S_MAX
    while not is_shown():
        if monotonic() > deadline:
            raise SystemExit(f"the explorer did not show it within {SHOWN_S_MAX:.0f} s")
        await pause(0.05)
    await pause(0.3)  # The rest of the screen follows its first text.


if __name__ == "__main__":
    PICTURES.mkdir(exist_ok=True)
    demo()
    asyncio.run(explorer())
    console()
