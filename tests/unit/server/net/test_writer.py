"""What leaves a connection, over a real socket: files of any size, slow readers, sudden ends."""

import asyncio
import errno
import gc
import os
from collections.abc import Callable, Coroutine, Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from millstream.server.net import writer
from millstream.server.system.descriptors import is_cached
from millstream.server.system.real_ports import WorkerThreads
from millstream.storage.files.disk import DiskFiles
from millstream.storage.files.memory import MemoryFiles
from millstream.storage.log.segment import FileRange
from tests.support.line_server import LOOPS, LineClient, LineServer, line_server, run_on, until

Run = Callable[[Coroutine[None, None, None]], None]
SIZES = [1, 4096, writer.PIECE_BYTES_MAX - 1, writer.PIECE_BYTES_MAX + 1, 9 * 2**20 + 5]
LARGE = 32 * 2**20  # More than any socket takes without a reader.


@pytest.fixture(params=LOOPS)
def run(request: pytest.FixtureRequest) -> Run:
    def and_collect(main: Coroutine[None, None, None]) -> None:
        run_on(request.param, main)
        gc.collect()

    return and_collect


@pytest.fixture(params=["mapped", "read", "memory"])
def ranges(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[bytes], FileRange]:
    """Files whose bytes leave in each of the ways there are."""
    smallest = {"mapped": 1, "read": 2**40}.get(request.param, writer.MAPPED_BYTES_MIN)
    monkeypatch.setattr(writer, "MAPPED_BYTES_MIN", smallest)
    files = MemoryFiles() if request.param == "memory" else DiskFiles(tmp_path)

    def make(data: bytes) -> FileRange:
        file = files.open("blob", create=True)
        file.write(0, [b"before", data, b"behind"])
        return FileRange(file, len(b"before"), len(data), 0, 1)

    return make


def pattern(size: int) -> bytes:
    return os.urandom(1021) * (size // 1021) + b"x" * (size % 1021)


async def ask(server: LineServer, *lines: bytes) -> LineClient:
    client = await server.connect()
    client.send(*lines)
    return client


@pytest.mark.parametrize("size", SIZES)
def test_a_range_leaves_between_the_buffers_around_it(
    run: Run, ranges: Callable[[bytes], FileRange], size: int
) -> None:
    async def main() -> None:
        async with line_server() as server:
            data = pattern(size)
            part = ranges(data)
            server.blocks = [b"head", part, b"middle", part, b"tail"]
            client = await ask(server, b"echo one", b"send", b"echo two")

            whole = b"one\nhead" + data + b"middle" + data + b"tailtwo\n"

            assert await client.reader.readexactly(len(whole)) == whole

    run(main())


def test_a_reader_who_pauses_gets_every_byte_in_order(
    run: Run, ranges: Callable[[bytes], FileRange]
) -> None:
    async def main() -> None:
        async with line_server(write_buffer_bytes_max=2**16) as server:
            data = pattern(LARGE)
            server.blocks = [b"head", ranges(data)]
            client = await ask(server, b"send", b"echo behind it")
            received = b""
            for _ in range(8):
                client.pause_reading()
                for _ in range(100):
                    await asyncio.sleep(0)
                client.resume_reading()
                received += await client.reader.readexactly(LARGE // 16)

            received += await client.reader.readexactly(len(b"head") + LARGE // 2)

            assert received == b"head" + data
            assert await client.line() == b"behind it"

    run(main())


def test_a_range_whose_pages_cannot_be_sent_is_read(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk refused a page in the middle of the system call: reading names the reason."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EFAULT, "Bad address")

    async def main() -> None:
        async with line_server() as server:
            files = DiskFiles(tmp_path)
            data = pattern(3 * writer.PIECE_BYTES_MAX)
            files.open("blob", create=True).write(0, [data])
            server.blocks = [b"head", FileRange(files.open("blob"), 0, len(data), 0, 1), b"tail"]
            monkeypatch.setattr(writer, "send_mapped", refuse)
            client = await ask(server, b"send")

            whole = b"head" + data + b"tail"

            assert await client.reader.readexactly(len(whole)) == whole

    run(main())


def test_a_file_that_is_deleted_while_it_is_sent_arrives_whole(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with line_server() as server:
            files = DiskFiles(tmp_path)
            data = pattern(LARGE)
            files.open("blob", create=True).write(0, [data])
            server.blocks = [FileRange(files.open("blob"), 0, LARGE, 0, 1)]
            client = await server.connect()
            client.pause_reading()
            client.send(b"send")
            await until(lambda: bool(server.gateways and server.gateways[0].awaited))

            files.remove("blob")
            client.resume_reading()

            assert await client.reader.readexactly(LARGE) == data

    run(main())


def test_a_client_that_vanishes_while_a_file_is_sent_leaves_nothing_open(
    run: Run, tmp_path: Path
) -> None:
    def open_files() -> int:
        gc.collect()
        return len(list(Path("/proc/self/fd").iterdir()))

    async def main() -> None:
        async with line_server() as server:
            files = DiskFiles(tmp_path)
            files.open("blob", create=True).write(0, [bytes(LARGE)])
            before = open_files()
            for _ in range(5):
                server.blocks = [FileRange(files.open("blob"), 0, LARGE, 0, 1)]
                client = await server.connect()
                client.pause_reading()
                client.send(b"send")
                await until(lambda: bool(server.gateways and server.gateways[-1].awaited))
                client.reset()
                await until(lambda: server.listener.connection_count == 0)
            server.blocks = []
            server.gateways.clear()

            await until(lambda: open_files() <= before)

    run(main())


def test_a_slow_reader_of_a_file_holds_little_memory(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        async with line_server() as server:
            file = DiskFiles(tmp_path).open("blob", create=True)
            file.write(0, [bytes(LARGE)])
            server.blocks = [FileRange(file, 0, LARGE, 0, 1)]
            client = await server.connect()
            client.pause_reading()
            client.send(b"send")
            await until(lambda: bool(server.gateways and server.gateways[0].awaited))
            for _ in range(100):
                await asyncio.sleep(0)

            (connection,) = server.listener._connections
            assert connection._transport is not None
            assert connection._transport.get_write_buffer_size() <= writer.NUDGE_BYTES

    run(main())


def test_what_is_not_in_memory_is_read_elsewhere(
    run: Run, ranges: Callable[[bytes], FileRange], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        monkeypatch.setattr(writer, "is_cached", lambda *_: False)
        async with line_server() as server:
            data = pattern(3 * 2**20)
            server.blocks = [b"head", ranges(data), b"tail"]
            client = await ask(server, b"send")

            whole = b"head" + data + b"tail"
            assert await client.reader.readexactly(len(whole)) == whole

    run(main())


def test_a_file_that_was_just_written_is_in_memory(tmp_path: Path) -> None:
    file = DiskFiles(tmp_path).open("blob", create=True)
    file.write(0, [bytes(2**20)])

    assert is_cached(file.fileno(), 0, 2**20)
    assert is_cached(file.fileno(), 5, 1)


def test_replies_that_are_known_at_once_leave_in_one_write(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            server.answers_at_once = True
            client = await ask(server, *[b"echo %d" % number for number in range(200)])

            assert [await client.line() for _ in range(200)] == [b"%d" % n for n in range(200)]

    run(main())


def test_a_known_reply_does_not_overtake_one_that_is_waited_for(run: Run) -> None:
    async def main() -> None:
        async with line_server() as server:
            server.answers_at_once = True
            client = await ask(server, b"echo a", b"wait b", b"echo c", b"quiet", b"echo d")
            await until(lambda: bool(server.gateways and len(server.gateways[0].begun) == 5))

            server.happen(b"b")

            assert [await client.line() for _ in range(4)] == [b"a", b"b", b"c", b"d"]

    run(main())


def test_who_asks_and_never_reads_is_not_answered_without_bound(run: Run) -> None:
    async def main() -> None:
        async with line_server(pipeline_requests_max=8) as server:
            server.answers_at_once = True
            client = await server.connect()
            client.pause_reading()
            line = b"echo " + b"x" * 2**16
            for _ in range(1024):
                client.send(line)
            await until(lambda: bool(server.gateways and server.gateways[0].begun))
            (connection,) = server.listener._connections
            await until(lambda: not connection._is_reading and bool(connection._pending))

            assert len(server.gateways[0].begun) < 1024
            client.resume_reading()
            for _ in range(1024):
                assert len(await client.line()) == 2**16

    run(main())


class _Encrypted(asyncio.Transport):
    """A transport that encrypts: nothing may go past it."""

    def __init__(self) -> None:
        super().__init__(extra={"sslcontext": object(), "socket": None})
        self.written = b""
        self.sizes: list[int] = []

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        data = b"".join(list_of_data)
        self.written += data
        self.sizes.append(len(data))


def test_what_is_encrypted_never_goes_past_the_transport(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        transport = _Encrypted()
        out = writer.Writer(transport, WorkerThreads(), buffered_bytes_max=2**20)
        file = DiskFiles(tmp_path).open("blob", create=True)
        data = pattern(3 * 2**20)
        file.write(0, [data])

        await out.send([b"head", FileRange(file, 0, len(data), 0, 1), b"tail"])
        out.flush()

        assert transport.written == b"head" + data + b"tail"

    run(main())


def encrypted_range(directory: Path, size: int) -> tuple[bytes, FileRange]:
    file = DiskFiles(directory).open("blob", create=True)
    data = pattern(size)
    file.write(0, [data])
    return data, FileRange(file, 0, size, 0, 1)


def test_tls_is_handed_slices_that_its_buffer_can_keep(run: Run, tmp_path: Path) -> None:
    """OpenSSL's buffer never shrinks: a connection would keep as much as one reply has."""

    async def main() -> None:
        transport = _Encrypted()
        out = writer.Writer(transport, WorkerThreads(), buffered_bytes_max=2**20)
        _, part = encrypted_range(tmp_path, 3 * 2**20 + 5)

        await out.send([b"head", part, b"tail"])
        out.flush()

        slack = len(b"head") + len(b"tail")
        assert max(transport.sizes) <= writer.ENCRYPTED_BYTES_MAX + slack

    run(main())


def test_tls_is_handed_nothing_while_the_socket_is_full(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        transport = _Encrypted()
        out = writer.Writer(transport, WorkerThreads(), buffered_bytes_max=2**20)
        data, part = encrypted_range(tmp_path, 2**20)
        out.pause()
        sending = asyncio.get_running_loop().create_task(out.send([part]))
        for _ in range(100):
            await asyncio.sleep(0)

        assert len(transport.sizes) == 1
        out.resume()
        await sending
        out.flush()

        assert transport.written == data

    run(main())


def test_others_have_a_turn_while_much_is_encrypted(run: Run, tmp_path: Path) -> None:
    async def main() -> None:
        transport = _Encrypted()
        out = writer.Writer(transport, WorkerThreads(), buffered_bytes_max=2**20)
        _, part = encrypted_range(tmp_path, 4 * writer.TURN_BYTES_MAX)
        sizes_seen: list[int] = []
        loop = asyncio.get_running_loop()
        sending = loop.create_task(out.send([part]))
        while not sending.done():
            await asyncio.sleep(0)
            sizes_seen.append(len(transport.written))

        turns = [after - before for before, after in pairwise([0, *sizes_seen])]
        assert max(turns) <= writer.TURN_BYTES_MAX + writer.ENCRYPTED_BYTES_MAX

    run(main())
