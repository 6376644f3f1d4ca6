"""Makes the pictures of the documents: `make pictures`.

Runs the real commands and the real explorer, and writes what they show as SVG to docs/pictures.
"""

import asyncio
import io
import json
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from rich.console import Console
from rich.text import Text

from millstream.cli.explorer.app import Explorer
from millstream.client import connect
from millstream.testing import run_broker

PICTURES = Path(__file__).parent.parent / "docs" / "pictures"
DEMO = "millstream demo --once --no-spark"
DEMO_COLUMNS = 92
EXPLORER_SIZE = (100, 28)
ORDERS = [("ann", "flour", 25), ("dan", "rye", 5), ("eve", "oats", 12), ("ann", "spelt", 7)]
SHOWN_S_MAX = 120.0


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
