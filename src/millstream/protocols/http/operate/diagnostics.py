"""`GET /v1/diagnostics`: facts about this node in one archive, for a person who helps.

It has no records, and no secrets: those of the configuration are hidden, and values of log lines
that are called secrets are taken out.
"""

import zipfile
from dataclasses import replace
from functools import partial
from io import BytesIO
from typing import Final

import msgspec

from millstream.protocols.http.calls import Call, iso_time
from millstream.protocols.http.monitoring.health import report_of
from millstream.protocols.http.monitoring.metrics import Query, metrics
from millstream.protocols.http.operate.cluster import cluster
from millstream.protocols.http.operate.figures import FiguresParams, figures
from millstream.protocols.http.operate.node import ConfigParams, config
from millstream.protocols.http.router import Params, RawReply, Right, Route
from millstream.protocols.http.turns import turns_of
from millstream.security.redaction import redact_text

ZIP_TYPE: Final = "application/zip"
MINUTES: Final = 1_440
README: Final = """\
Facts about one Millstream node, by GET /v1/diagnostics: no records, no keys, no passwords.
Names of topics, groups, users and hosts are in it. Read it before you pass it on.

health.json    the checks of /health with their values
config.json    every setting with its origin; secrets are hidden
cluster.json   the nodes, as this one sees them
figures.json   the main series: 15 minutes by the second, 24 hours by the minute
metrics.txt    all metrics of this moment
log.txt        the last lines of the log
"""


async def diagnostics(call: Call, params: Params) -> RawReply:
    services = call.services
    settings = config(call, ConfigParams())
    shown = await turns_of(services).run(metrics(replace(call, extra={}), Query()), "/metrics")
    parts: dict[str, bytes] = {
        "README.txt": README.encode(),
        "health.json": _json(report_of(call)),
        "config.json": _json(settings),
        "cluster.json": _json(await cluster(call, params)),
        "figures.json": _json(
            {
                "by_second": figures(call, FiguresParams()),
                "by_minute": figures(call, FiguresParams(step="minute", count=MINUTES)),
            }
        ),
        "metrics.txt": shown.body,
    }
    lines = services.log_lines()
    body = await services.threads.run(partial(_packed, parts, lines))
    day = iso_time(services.clock.now_ms())[:10]
    name = f"millstream-node{services.config.node_id}-{day}.zip"
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return RawReply(body, ZIP_TYPE, headers=headers)


def _json(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2)


def _packed(parts: dict[str, bytes], lines: list[str]) -> bytes:
    """Blocks for some milliseconds: not for the event loop."""
    log = redact_text("\n".join(lines)) + "\n" if lines else ""
    data = BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, body in {**parts, "log.txt": log.encode("utf-8", "replace")}.items():
            archive.writestr(name, body)
    return data.getvalue()


_CLUSTER = "cluster"

ROUTES = (
    Route(
        method="GET",
        path="/v1/diagnostics",
        handler=diagnostics,
        summary="Health, settings, figures, metrics and the last log lines, as a zip archive",
        reply=bytes,
        rights=(
            Right("DESCRIBE_CONFIGS", _CLUSTER),
            Right("DESCRIBE", _CLUSTER),
            Right("DESCRIBE", "topic:*"),
        ),
        sends=ZIP_TYPE,
        is_raw=True,
    ),
)
