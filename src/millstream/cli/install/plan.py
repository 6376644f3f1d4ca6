"""The steps that make a node a service of systemd, and those that take it away.

Pure: a plan is made from options and from what is there already, and can be shown or carried out.
Data, settings and the user outlive the service: no plan removes them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePosixPath

UNIT_DIRECTORY = PurePosixPath("/etc/systemd/system")
CONFIG = PurePosixPath("/etc/millstream/millstream.toml")
HOME = PurePosixPath("/var/lib/millstream")
# More than `timing.stop_ms_max` allows for requests in progress, then for closing the logs.
STOP_TIMEOUT_S = 60
WATCHDOG_S = 60
OPEN_FILES_MAX = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    program: Sequence[str]  # What runs `millstream`, with absolute paths.
    user: str = "millstream"
    name: str = "millstream"  # Of the service.
    config: PurePosixPath = CONFIG
    home: PurePosixPath = HOME

    @property
    def unit(self) -> PurePosixPath:
        return UNIT_DIRECTORY / f"{self.name}.service"


class Kind(Enum):
    RUN = "run"
    DIRECTORY = "directory"
    FILE = "file"
    REMOVE = "remove"
    KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    kind: Kind
    subject: str  # A path, or a command.
    text: str = ""  # Of a file.
    mode: int = 0o644
    owner: str = ""  # root without one.
    command: tuple[str, ...] = ()

    def describe(self) -> str:
        owner = f", owner {self.owner}" if self.owner else ""
        match self.kind:
            case Kind.DIRECTORY:
                return f"make {self.subject} (mode {self.mode:04o}{owner})"
            case Kind.FILE:
                return f"write {self.subject} (mode {self.mode:04o}{owner})"
            case Kind.REMOVE:
                return f"remove {self.subject}"
            case Kind.KEPT:
                return f"keep {self.subject}"
            case Kind.RUN:
                return f"run {self.subject}"


def unit_text(options: Options) -> str:
    """The unit. It may write below `home` only, and has no rights of root."""
    program = " ".join(map(_quoted, options.program))
    return f"""\
[Unit]
Description=Millstream broker
After=network-online.target
Wants=network-online.target

[Service]
Type=notify
NotifyAccess=main
User={options.user}
ExecStart={program} serve --config {_quoted(str(options.config))}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=2
TimeoutStartSec=120
TimeoutStopSec={STOP_TIMEOUT_S}
WatchdogSec={WATCHDOG_S}
LimitNOFILE={OPEN_FILES_MAX}
OOMScoreAdjust=-500
UMask=0077
NoNewPrivileges=yes
CapabilityBoundingSet=
LockPersonality=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=read-only
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectSystem=strict
ReadWritePaths={_quoted(str(options.home))}
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictRealtime=yes
RestrictSUIDSGID=yes

[Install]
WantedBy=multi-user.target
"""


def settings_text(options: Options) -> str:
    return f"""\
# Millstream's settings; `millstream config keys` lists all of them.
data_dir = "{options.home}/data"

# The default serves this machine only. Before others may connect, set up logins:
# docs/security/five-minutes.md.
# host = "0.0.0.0"
# advertised_host = "broker.example"
"""


def installation(
    options: Options, *, has_user: bool, has_settings: bool, is_started: bool
) -> list[Step]:
    steps = []
    if not has_user:
        home = str(options.home)
        shell = "/usr/sbin/nologin"
        words = ("useradd", "--system", "--home-dir", home, "--shell", shell, options.user)
        steps.append(_run(*words))
    steps += [
        Step(kind=Kind.DIRECTORY, subject=str(options.config.parent), mode=0o755),
        Step(kind=Kind.DIRECTORY, subject=str(options.home), mode=0o700, owner=options.user),
        Step(kind=Kind.KEPT, subject=str(options.config))
        if has_settings
        else Step(kind=Kind.FILE, subject=str(options.config), text=settings_text(options)),
        Step(kind=Kind.FILE, subject=str(options.unit), text=unit_text(options)),
        _run("systemctl", "daemon-reload"),
    ]
    if is_started:
        steps.append(_run("systemctl", "enable", "--now", options.name))
    return steps


def removal(options: Options) -> list[Step]:
    return [
        _run("systemctl", "disable", "--now", options.name),
        Step(kind=Kind.REMOVE, subject=str(options.unit)),
        _run("systemctl", "daemon-reload"),
        Step(kind=Kind.KEPT, subject=str(options.home)),
        Step(kind=Kind.KEPT, subject=str(options.config)),
    ]


def _run(*words: str) -> Step:
    return Step(kind=Kind.RUN, subject=" ".join(words), command=words)


def _quoted(text: str) -> str:
    """As systemd reads a word: `%` begins a specifier, `$` a variable."""
    text = text.replace("\\", "\\\\").replace("%", "%%").replace("$", "$$").replace('"', '\\"')
    return f'"{text}"' if any(letter in text for letter in " \t'\";") else text
