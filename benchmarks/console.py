"""Measures the console's goals in a real browser: paint, long lists, a live tail, an idle page.

    python -m benchmarks.console [--topics 10000] [--tail-s 10] [--idle-s 20]

Needs a Chromium on the path. Prints a line for each goal with what was measured.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from threading import Event, Thread
from typing import NamedTuple

from confluent_kafka.admin import AdminClient, NewTopic
from playwright.sync_api import Browser, Page, sync_playwright

from millstream.client import connect

BROWSERS = ("chromium", "chromium-headless-shell", "google-chrome")
RUNS = 5
CREATED_AT_ONCE = 500
WAIT_MS = 60_000
TICKS = os.sysconf("SC_CLK_TCK")


class Node(NamedTuple):
    process: "subprocess.Popen[str]"
    bootstrap: str
    console: str

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def running_node() -> Iterator[Node]:
    with tempfile.TemporaryDirectory() as directory:
        program = Path(sys.executable).with_name("millstream")
        settings = {"LISTENERS": "kafka,http", "PORT": "0", "HTTP_PORT": "0"}
        process = subprocess.Popen(
            [program, "serve", "--data-dir", f"{directory}/data"],
            env=os.environ | {f"MILLSTREAM_{name}": value for name, value in settings.items()},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            words = dict(
                word.split("=", 1) for word in process.stdout.readline().split() if "=" in word
            )
            yield Node(process, words["kafka"], f"http://{words['http']}/console")
        finally:
            process.terminate()
            process.wait()


def report(goal: str, measured: str, limit: str) -> None:
    print(f"{goal:<52} {measured:>18}   goal {limit}", flush=True)


def paint(browser: Browser, node: Node) -> None:
    """First contentful paint of the overview, with a cold and a warm cache."""
    cold: list[float] = []
    warm: list[float] = []
    for _ in range(RUNS):
        context = browser.new_context()
        page = context.new_page()
        for times in (cold, warm):
            page.goto(f"{node.console}/")
            page.locator("main h1").wait_for()
            entry = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1"
            times.append(page.evaluate(entry) / 1000)
        context.close()
    report("first contentful paint, cold", f"{median(cold):.2f} s", "0.5 s, busy 1 s")
    report("first contentful paint, warm", f"{median(warm):.2f} s", "0.2 s")


def long_list(browser: Browser, node: Node, topics: int) -> None:
    page = browser.new_page()
    began = time.monotonic()
    page.goto(f"{node.console}/topics")
    page.locator("tbody a.name").first.wait_for(timeout=WAIT_MS)
    report(f"topics: {topics:,} in the list, usable", f"{time.monotonic() - began:.2f} s", "1 s")
    typed = page.evaluate(
        """async () => {
          const box = document.querySelector('[data-find]');
          const times = [];
          for (const text of ['t-1', 't-12', 't-123', 't-12', 't-1', '']) {
            const began = performance.now();
            box.value = text;
            box.dispatchEvent(new Event('input', { bubbles: true }));
            await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
            times.push(performance.now() - began);
          }
          return times;
        }"""
    )
    report("topics: filter as typed, worst", f"{max(typed):.0f} ms", "50 ms")
    frames = page.evaluate(
        """async () => {
          const list = document.querySelector('.list.scroll');
          const times = [];
          let before = performance.now();
          for (let step = 0; step < 120; step++) {
            list.scrollTop += 400;
            await new Promise((done) => requestAnimationFrame(done));
            const now = performance.now();
            times.push(now - before);
            before = now;
          }
          return times.sort((a, b) => a - b);
        }"""
    )
    report("topics: scroll, frames p99", f"{frames[int(len(frames) * 0.99)]:.0f} ms", "50 ms")
    page.close()


def produce_evenly(bootstrap: str, rate: int, stop: Event) -> None:
    with connect(bootstrap) as client, client.producer() as producer:
        due = time.monotonic()
        while not stop.is_set():
            for number in range(rate // 20):
                producer.send("tailed", json.dumps({"id": number, "item": "flour", "kg": 25}))
            producer.flush()
            due += 0.05
            time.sleep(max(0.0, due - time.monotonic()))


def tail(browser: Browser, node: Node, seconds: float) -> None:
    """A live tail: the broker's processor time beyond that of the records, and long tasks."""
    for rate in (1_000, 5_000):
        stop = Event()
        writer = Thread(target=produce_evenly, args=(node.bootstrap, rate, stop))
        writer.start()
        try:
            time.sleep(1)
            alone = spent(node, seconds)
            page = browser.new_page()
            page.goto(f"{node.console}/topics/tailed?live=1")
            page.locator("tbody tr").first.wait_for(timeout=WAIT_MS)
            watch_tasks(page)
            together = spent(node, seconds)
            longest = page.evaluate("Math.max(0, ...window.longTasks)")
            heap = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
            rows = page.locator("table").first.get_attribute("aria-rowcount")
        finally:
            stop.set()
            writer.join()
        page.close()
        goal = "3 %" if rate == 1_000 else "none"
        report(f"tail {rate:,}/s: broker", f"{(together - alone) * 100:.1f} % of a core", goal)
        report(f"tail {rate:,}/s: longest task", f"{longest:.0f} ms", "100 ms")
        report(f"tail {rate:,}/s: heap with {rows} rows", f"{heap:.0f} MB", "150 MB")


def watch_tasks(page: Page) -> None:
    page.evaluate(
        """() => {
          window.longTasks = [];
          new PerformanceObserver((list) => {
            for (const entry of list.getEntries()) window.longTasks.push(entry.duration);
          }).observe({ type: 'longtask' });
        }"""
    )


def spent(node: Node, seconds: float) -> float:
    """The share of a core that the broker takes for so many seconds."""
    began, before = time.monotonic(), node.cpu_s()
    time.sleep(seconds)
    return (node.cpu_s() - before) / (time.monotonic() - began)


def idle(browser: Browser, node: Node, seconds: float) -> None:
    alone = spent(node, seconds)
    page = browser.new_page()
    page.goto(f"{node.console}/topics/tailed")
    page.locator("main h1").wait_for()
    time.sleep(2)
    together = spent(node, seconds)
    page.close()
    report("an open page: broker", f"{(together - alone) * 100:.2f} % of a core", "0.2 %")


def create_topics(bootstrap: str, names: list[str]) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for start in range(0, len(names), CREATED_AT_ONCE):
        some = [NewTopic(name, 1) for name in names[start : start + CREATED_AT_ONCE]]
        for future in admin.create_topics(some, request_timeout=120).values():
            future.result()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--tail-s", type=float, default=10)
    parser.add_argument("--idle-s", type=float, default=20)
    asked = parser.parse_args()
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if path is None:
        print("no Chromium on the path: the console is not measured")
        return
    with running_node() as node, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path)
        create_topics(node.bootstrap, ["tailed"])
        paint(browser, node)
        idle(browser, node, asked.idle_s)
        tail(browser, node, asked.tail_s)
        create_topics(node.bootstrap, [f"t-{number}" for number in range(asked.topics)])
        long_list(browser, node, asked.topics)
        browser.close()


if __name__ == "__main__":
    main()
