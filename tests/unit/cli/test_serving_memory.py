"""The allocator of a serving process: freed memory is kept, buffers of TLS have their own pages."""

import asyncio
import socket

import pytest

from millstream.cli import serving


def test_a_new_connection_has_untouched_pages_and_later_blocks_reused_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    options: list[tuple[int, int]] = []
    monkeypatch.setattr(serving, "_malloc_options", lambda: lambda *option: options.append(option))

    async def main() -> list[tuple[int, int]]:
        ours, theirs = socket.socketpair()
        with theirs:
            loop = asyncio.get_running_loop()
            transport, _ = await loop.connect_accepted_socket(asyncio.Protocol, ours)
            transport.close()
            async with asyncio.timeout(30):
                while ours.fileno() >= 0:
                    await asyncio.sleep(0)
        return options

    with asyncio.Runner(loop_factory=serving._loop_factory()) as runner:
        assert [value for _, value in runner.run(main())] == [
            serving.UNTOUCHED_BYTES_MIN,
            serving.REUSED_BYTES_MAX,
        ]
