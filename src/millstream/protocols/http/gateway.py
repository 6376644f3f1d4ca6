"""One HTTP client's conversation: answers `GET /metrics`, refuses all else."""

import asyncio
from collections.abc import Coroutine, Iterable, Sized
from http import HTTPStatus
from typing import Any

from millstream.errors import ProtocolError
from millstream.metrics import Metrics, Sample
from millstream.model import Buffer
from millstream.protocols.http.wire import METRICS_TYPE, Heads, metric_lines, parse, response

STEP_SAMPLES = 256  # Between two turns of the loop: about half a millisecond.

Reply = list[Buffer]


class HttpGateway:
    """Connections are persistent: every response has a length."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._heads = Heads()
        self._is_over = False

    @property
    def unfinished_bytes(self) -> int:
        return self._heads.unfinished_bytes

    def receive(self, data: bytes) -> Iterable[bytes]:
        return self._heads.feed(data)

    # Any: PEP 492 leaves the yield and send types of a coroutine to the loop.
    def begin(self, request: Sized) -> Coroutine[Any, Any, Reply] | Reply:
        assert isinstance(request, bytes)
        if self._is_over:
            raise ProtocolError("bytes behind a request that was refused")
        try:
            method, path = parse(request)
        except ProtocolError as problem:
            self._is_over = True  # Where the next request begins is not known.
            return [response(HTTPStatus.BAD_REQUEST, f"{problem}\n".encode())]
        is_head = method == "HEAD"
        if method not in ("GET", "HEAD"):
            text = f"{method} is not allowed; GET /metrics is\n"
            status = HTTPStatus.METHOD_NOT_ALLOWED
        elif path == "/metrics":
            return self._render(is_head=is_head)
        else:
            text = f"there is no {path}; metrics are at /metrics\n"
            status = HTTPStatus.NOT_FOUND
        return [response(status, text.encode(), is_head=is_head)]

    def close(self) -> None:
        return

    async def _render(self, *, is_head: bool) -> Reply:
        """All metrics. The samples of a metric must stand together, in the order of their names."""
        samples: list[Sample] = []
        for sample in self._metrics.samples():
            samples.append(sample)
            if len(samples) % STEP_SAMPLES == 0:
                await asyncio.sleep(0)
        samples.sort(key=lambda sample: sample.metric.name)
        lines: list[str] = []
        for line in metric_lines(iter(samples)):
            lines.append(line)
            if len(lines) % STEP_SAMPLES == 0:
                await asyncio.sleep(0)
        body = "".join(lines).encode()
        return [response(HTTPStatus.OK, body, kind=METRICS_TYPE, is_head=is_head)]
