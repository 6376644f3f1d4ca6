"""Compiles Protobuf files with `protoc`, in a process of its own.

The files lie in a directory of their own while it runs; nothing else is read but the files that
come with `protoc`. Time and memory of the process are bounded.
"""

import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

COMPILE_S_MAX = 10.0
MEMORY_BYTES_MAX = 2**30
MESSAGE_LINES_MAX = 5


class Protoc:
    def __init__(self) -> None:
        self._path: str | None = None

    def is_installed(self) -> bool:
        # The extra has both.
        return find_spec("google.protobuf") is not None and self._program() is not None

    def compile(self, files: Mapping[str, str], name: str) -> bytes:
        program = self._program()
        if program is None:
            raise ValueError("protoc is not installed: pip install 'millstream[protobuf]'")
        import tempfile

        with tempfile.TemporaryDirectory(prefix="millstream-protoc-") as folder:
            for path, text in files.items():
                target = Path(folder, path)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(text, encoding="utf-8")
            output = Path(folder, "set.bin")
            command = [
                program,
                f"-I{folder}",
                "--include_imports",
                f"--descriptor_set_out={output}",
            ]
            _run([*command, name], folder)
            return output.read_bytes()

    def _program(self) -> str | None:
        if self._path is None:
            import shutil

            beside = Path(sys.executable).with_name("protoc")
            self._path = str(beside) if beside.exists() else shutil.which("protoc")
        return self._path


def _run(command: list[str], folder: str) -> None:
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    ) as process:
        _bound_memory(process.pid)
        try:
            _, errors = process.communicate(timeout=COMPILE_S_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
            raise ValueError(f"protoc took longer than {COMPILE_S_MAX:.0f} s") from None
    if process.returncode:
        lines = errors.decode("utf-8", "replace").replace(f"{folder}/", "").splitlines()
        raise ValueError("; ".join(lines[:MESSAGE_LINES_MAX]) or "protoc ran out of memory")


def _bound_memory(pid: int) -> None:
    """Where the system can: not in the child before it runs, which is not safe beside threads."""
    import resource

    if hasattr(resource, "prlimit"):
        try:
            resource.prlimit(pid, resource.RLIMIT_AS, (MEMORY_BYTES_MAX, MEMORY_BYTES_MAX))
        except (ProcessLookupError, PermissionError):
            return  # It has ended by now.
