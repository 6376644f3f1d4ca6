"""How a node's log lines look: for a person on a terminal, as JSON lines for everything else.

Owns the two shapes; what is logged is the business of those who log. A JSON line has the keys
`time`, `level`, `logger`, `message`, and `exception` where there is one.
"""

import json
import logging
import sys
from datetime import UTC, datetime
from typing import TextIO

HUMAN = "%(asctime)s %(levelname)-7s %(name)s %(message)s"


class JsonLines(logging.Formatter):
    """One JSON object per line, times in UTC."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


def set_up_logging(form: str, *, is_verbose: bool, stream: TextIO | None = None) -> None:
    """Send all log lines to `stream`, standard error by default. `form` is auto, human or json."""
    stream = sys.stderr if stream is None else stream
    is_human = form == "human" or (form == "auto" and stream.isatty())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter(HUMAN) if is_human else JsonLines())
    level = logging.DEBUG if is_verbose else logging.INFO
    logging.basicConfig(level=level, handlers=[handler])
