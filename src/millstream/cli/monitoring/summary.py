"""The figures of `millstream top`: what a broker is doing, between two looks at its metrics."""

from typing import Any

from millstream.cli.monitoring.scrape import Scrape, quantile, rate
from millstream.cli.render import card, table

ROWS_MAX = 10

# Any: values as JSON has them.
Figures = dict[str, Any]


def summary(before: Scrape, now: Scrape) -> Figures:
    """The figures of one look, with rates since the look before."""
    topics = [labels["topic"] for labels, _ in now.each("millstream_topic_appended_bytes_total")]
    lags = {
        (labels["group"], labels["topic"]): value
        for labels, value in now.each("millstream_group_lag_seconds")
    }
    busiest: list[Figures] = [
        {
            "topic": topic,
            "records_in_s": round(
                rate(before, now, "millstream_topic_appended_records_total", topic=topic), 1
            ),
            "bytes_in_s": round(
                rate(before, now, "millstream_topic_appended_bytes_total", topic=topic)
            ),
            "bytes_out_s": round(
                rate(before, now, "millstream_topic_read_bytes_total", topic=topic)
            ),
        }
        for topic in topics
    ]
    busiest.sort(key=lambda row: (-row["bytes_in_s"], -row["bytes_out_s"]))
    behind: list[Figures] = [
        {**labels, "records": int(value), "seconds": lags.get((labels["group"], labels["topic"]))}
        for labels, value in now.each("millstream_group_lag")
    ]
    behind.sort(key=lambda row: -row["records"])
    statuses = {labels["check"]: value for labels, value in now.each("millstream_health")}
    return {
        "records_in_s": round(rate(before, now, "millstream_appended_records_total"), 1),
        "bytes_in_s": round(rate(before, now, "millstream_appended_bytes_total")),
        "bytes_out_s": round(rate(before, now, "millstream_read_bytes_total")),
        "requests_s": round(rate(before, now, "millstream_requests_total"), 1),
        "append_p99_s": quantile(before, now, "millstream_append_seconds", 0.99),
        "fetch_p99_s": quantile(before, now, "millstream_fetch_seconds", 0.99),
        "sync_p99_s": quantile(before, now, "millstream_sync_round_seconds", 0.99),
        "loop_late_p99_s": quantile(before, now, "millstream_loop_late_seconds", 0.99),
        "connections": int(now.total("millstream_connections")),
        "cpu_percent": round(100 * rate(before, now, "process_cpu_seconds_total"), 1),
        "memory_bytes": int(now.total("process_resident_memory_bytes")),
        "disk_free_bytes": int(now.total("millstream_disk_free_bytes")),
        "not_healthy": sorted(check for check, value in statuses.items() if value),
        "topics": busiest[:ROWS_MAX],
        "groups": behind[:ROWS_MAX],
    }


def screen(url: str, figures: Figures) -> str:
    """The figures for a person, in the lines of a terminal."""
    facts = {name: value for name, value in figures.items() if not isinstance(value, list)}
    facts["not_healthy"] = ", ".join(figures["not_healthy"]) or "none"
    parts = [url, card(facts)]
    for name in ("topics", "groups"):
        if figures[name]:
            parts += [table(figures[name])]
    return "\n\n".join(parts) + "\n"
