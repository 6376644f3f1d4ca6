"""Makes the files of the dashboards: JSON for Grafana, YAML for Prometheus' alert rules."""

import json
from collections.abc import Iterator
from typing import Any

from millstream.cli.monitoring.panels import ALERTS, DASHBOARDS, Alert, Dashboard, Panel

SELECTOR = 'instance=~"$instance"'
RANGE = "$__rate_interval"
PANEL_WIDTH, PANEL_HEIGHT, ROW_WIDTH = 12, 8, 24
GRAFANA_SCHEMA = 39  # Of Grafana 11; later ones read it.

# JSON of any shape.
Json = Any


def files() -> Iterator[tuple[str, str]]:
    """The name and the text of each file."""
    for dashboard in DASHBOARDS:
        text = json.dumps(grafana(dashboard), indent=2) + "\n"
        yield f"millstream-{dashboard.name}.json", text
    yield "millstream-rules.yml", rules()


def expression(text: str, *, selector: str, span: str) -> str:
    """An expression of the tables, for chosen brokers and a range of rates."""
    braces = f"{{{selector}}}" if selector else ""
    return text.replace("{}", braces).replace("[R]", f"[{span}]")


def grafana(dashboard: Dashboard) -> Json:
    source = {"type": "prometheus", "uid": "${datasource}"}
    instances = {
        "name": "instance",
        "label": "Broker",
        "type": "query",
        "datasource": source,
        "query": {"query": "label_values(millstream_build_info, instance)", "refId": "instance"},
        "refresh": 2,
        "includeAll": True,
        "multi": True,
        "current": {"text": "All", "value": "$__all"},
    }
    sources = {"name": "datasource", "label": "Source", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"millstream-{dashboard.name}",
        "title": f"Millstream: {dashboard.title}",
        "tags": ["millstream"],
        "schemaVersion": GRAFANA_SCHEMA,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [sources, instances]},
        "panels": [_panel(at, panel, source) for at, panel in enumerate(dashboard.panels)],
    }


def _panel(index: int, panel: Panel, source: Json) -> Json:
    row, column = divmod(index * PANEL_WIDTH, ROW_WIDTH)
    return {
        "id": index + 1,
        "type": "timeseries",
        "title": panel.title,
        "datasource": source,
        "gridPos": {"x": column, "y": row * PANEL_HEIGHT, "w": PANEL_WIDTH, "h": PANEL_HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "expr": expression(text, selector=SELECTOR, span=RANGE),
                "legendFormat": legend,
                "datasource": source,
            }
            for at, (text, legend) in enumerate(panel.expressions)
        ],
    }


def rules() -> str:
    lines = ["# Alert rules for Prometheus. Its scrape job is called millstream.", "groups:"]
    lines += ["  - name: millstream", "    rules:"]
    for alert in ALERTS:
        lines += _rule(alert)
    return "\n".join(lines) + "\n"


def _rule(alert: Alert) -> Iterator[str]:
    # A text in JSON is one in YAML.
    yield f"      - alert: {alert.name}"
    yield f"        expr: {json.dumps(alert.expression)}"
    if alert.minutes:
        yield f"        for: {alert.minutes}m"
    yield f"        labels: {{severity: {alert.severity}}}"
    yield f"        annotations: {{summary: {json.dumps(alert.summary)}}}"
