"""Gathers a support bundle: one archive of facts about a node.

A part that cannot be had becomes a file that says why: the bundle of a node that is down is worth
as much. No part reads a record.
"""

import io
import json
import os
import platform
import resource
import tarfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream import __version__
from millstream.security.redaction import Pseudonyms, redact, redact_text

if TYPE_CHECKING:
    from millstream.cli.connection import Target
    from millstream.client import Client

LOG_BYTES_MAX = 4 * 2**20  # The end of each log file.
METRICS_BYTES_MAX = 8 * 2**20
FILES_LISTED_MAX = 20_000
TIMEOUT_S = 10

_SYSCTLS = ("vm/swappiness", "vm/dirty_ratio", "vm/max_map_count", "net/core/somaxconn")
_LIMITS = {"open_files": resource.RLIMIT_NOFILE, "file_bytes": resource.RLIMIT_FSIZE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    target: "Target"
    config_path: str | None
    data_dir: str | None
    logs: tuple[Path, ...]
    http: str  # The address of the HTTP listener.
    is_anonymous: bool


def gather(sources: Sources, open_client: Callable[["Target"], "Client"]) -> dict[str, str]:
    """The texts of all files of the bundle, by name, redacted."""
    names = Pseudonyms(os.urandom(16))
    parts: dict[str, str] = {}

    def add(name: str, work: Callable[[], object]) -> None:
        try:
            parts[name] = _text(work())
        except Exception as problem:  # A bundle of a broken node is what it is for.
            parts[f"{name}.missing"] = f"{type(problem).__name__}: {redact_text(str(problem))}\n"

    add("about.json", _about)
    add("config.json", lambda: _config(sources))
    add("machine.json", lambda: _machine(sources))
    add("files.txt", lambda: _files(sources))
    add("metrics.txt", lambda: _metrics(sources))
    try:
        with open_client(sources.target) as client:
            add("cluster.json", lambda: asdict(client.admin.describe_cluster()))
            add("topics.json", lambda: _topics(client, names))
            add("groups.json", lambda: _groups(client, names))
            add("damage.json", lambda: asdict(client.damage.list()))
            add("storage.json", lambda: [asdict(each) for each in client.storage_problems()])
    except Exception as problem:
        parts["broker.missing"] = f"{type(problem).__name__}: {redact_text(str(problem))}\n"
    for path in sources.logs:
        add(f"logs/{path.name}", lambda path=path: _tail(path))  # type: ignore[misc]
    if sources.is_anonymous:
        parts = {name: names.apply(text) for name, text in parts.items()}
    return parts


def write(parts: dict[str, str], target: Path) -> None:
    """One archive, readable by its owner alone; `FileExistsError` if there is one."""
    listed = "".join(f"{name}\n" for name in sorted(parts))
    parts = {"README.txt": README + listed, **parts}
    descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with (
        os.fdopen(descriptor, "wb") as file,
        tarfile.open(fileobj=file, mode="w:gz") as archive,
    ):
        for name, text in sorted(parts.items()):
            data = text.encode()
            member = tarfile.TarInfo(f"millstream-support/{name}")
            member.size, member.mtime, member.mode = len(data), int(time.time()), 0o600
            archive.addfile(member, io.BytesIO(data))


README = """\
Facts about a Millstream node, gathered by `millstream support-bundle`.
It holds no records, no keys, no passwords: values whose names say that they are
secrets were replaced. Names of topics, groups and hosts are in it, unless it was
made with --anonymous. Read it before you pass it on.

"""


def _text(value: Any) -> str:
    if isinstance(value, str):
        return redact_text(value)
    return json.dumps(redact(value), indent=2, default=str, ensure_ascii=False) + "\n"


def _about() -> dict[str, object]:
    return {
        "millstream": __version__,
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


def _config(sources: Sources) -> dict[str, object]:
    from millstream.cli.commands.operate.node import flatten
    from millstream.config_sources import load_with_origins

    config, origins = load_with_origins(path=sources.config_path, flags=_flags(sources))
    return {
        key: {"value": value, "origin": origins.get(key, "default")}
        for key, value in flatten(config).items()
    }


def _flags(sources: Sources) -> dict[str, object]:
    return {} if sources.data_dir is None else {"data_dir": sources.data_dir}


def _data_dir(sources: Sources) -> Path:
    from millstream.config_sources import load_with_origins

    config, _ = load_with_origins(path=sources.config_path, flags=_flags(sources))
    return Path(config.data_dir)


def _machine(sources: Sources) -> dict[str, object]:
    facts: dict[str, object] = {
        "load": os.getloadavg(),
        "limits": {name: resource.getrlimit(number) for name, number in _LIMITS.items()},
        "kernel": {name: _read(f"/proc/sys/{name}") for name in _SYSCTLS},
        "memory": _read("/proc/meminfo").splitlines()[:6],
    }
    directory = _data_dir(sources)
    if directory.exists():
        space = os.statvfs(directory)
        facts["disk"] = {
            "bytes": space.f_blocks * space.f_frsize,
            "free_bytes": space.f_bavail * space.f_frsize,
            "free_inodes": space.f_favail,
        }
    return facts


def _files(sources: Sources) -> str:
    """Sizes and times of the files of the data directory, and nothing of what is in them."""
    root = _data_dir(sources)
    if not root.is_dir():
        raise FileNotFoundError(f"there is no {root}")
    lines = []
    for parent, _, names in os.walk(root):
        for name in sorted(names):
            path = Path(parent, name)
            status = path.stat()
            lines.append(f"{status.st_size:>14} {int(status.st_mtime)} {path.relative_to(root)}")
            if len(lines) == FILES_LISTED_MAX:
                return "\n".join([*lines, f"... more than {FILES_LISTED_MAX} files\n"])
    return "\n".join(lines) + "\n"


def _metrics(sources: Sources) -> str:
    address = f"{sources.http.rstrip('/')}/metrics"
    if not address.startswith(("http://", "https://")):
        raise ValueError(f"{sources.http} is no address such as http://localhost:9094")
    with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer:
        data: bytes = answer.read(METRICS_BYTES_MAX)
    return data.decode(errors="replace")


def _topics(client: "Client", names: Pseudonyms) -> list[dict[str, object]]:
    topics = client.admin.list_topics(with_internal=True)
    names.learn("topic", (topic.name for topic in topics))
    return [
        {
            **asdict(topic),
            "settings": [asdict(setting) for setting in client.admin.topic_settings(topic.name)],
        }
        for topic in topics
    ]


def _groups(client: "Client", names: Pseudonyms) -> list[dict[str, object]]:
    groups = client.admin.list_groups()
    names.learn("group", (group.group_id for group in groups))
    return [
        {**asdict(group), "lag": [asdict(lag) for lag in client.admin.group_lag(group.group_id)]}
        for group in groups
    ]


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LOG_BYTES_MAX))
        return file.read(LOG_BYTES_MAX).decode(errors="replace")


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except OSError as problem:
        return f"not readable: {problem.strerror}"
