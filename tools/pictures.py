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
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text
from tests.support.http import http_node

from millstream.cli.explorer.app import Explorer
from millstream.client import connect
from millstream.testing import run_broker

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
DEMO = "millstream demo --once --no-spark"
DEMO_COLUMNS = 92
EXPLORER_SIZE = (100, 28)
ORDERS = [("ann", "flour", 25), ("dan", "rye", 5), ("eve", "oats", 12), ("ann", "spelt", 7)]
SHOWN_S_MAX = 120.0
BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome")
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
    """The overview and a topic's records, in a browser."""
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        raise SystemExit("no Chromium on the path: the pictures of the console stay as they are")
    with http_node() as node:
        port = node.broker.call(lambda broker: broker.addresses["kafka"].port)
        with connect(f"127.0.0.1:{port}") as client:
            for name in ("orders", "payments", "mails"):
                client.admin.create_topic(name, partitions=3)
            with client.producer() as producer:
                for number in range(4_000):
                    customer, item, kg = ORDERS[number % len(ORDERS)]
                    order = {"id": number, "customer": {"name": customer}, "item": item, "kg": kg}
                    producer.send("orders", json.dumps(order), key=customer)
            with client.consumer("orders", group="billing") as consumer:
                consumer.take(3_000)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=path)
            page = browser.new_page(viewport={"width": 1280, "height": 800})
            for name, address in (
                ("console-overview", "/console/"),
                ("console-records", "/console/topics/orders?at=0@10"),
            ):
                page.goto(f"http://127.0.0.1:{node.ask.port}{address}")
                page.wait_for_timeout(CONSOLE_SHOWN_MS)
                page.screenshot(path=PICTURES / f"{name}.png")
            browser.close()


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
