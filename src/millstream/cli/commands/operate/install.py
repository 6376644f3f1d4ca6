"""`millstream install`: a node as a service of systemd."""

import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

import click

from millstream.cli.render import Answer, Refused, answered

if TYPE_CHECKING:
    from millstream.cli.install.plan import Options, Step

COMMAND_TIMEOUT_S = 180


@click.command()
@click.option("--user", default="millstream", show_default=True, help="The service runs as it.")
@click.option("--name", default="millstream", show_default=True, help="Of the service.")
@click.option(
    "--config",
    "config",
    default="/etc/millstream/millstream.toml",
    show_default=True,
    metavar="FILE",
    help="Settings; written if there are none.",
)
@click.option(
    "--home",
    default="/var/lib/millstream",
    show_default=True,
    metavar="DIR",
    help="Data is kept below it.",
)
@click.option("--uninstall", "is_removed", is_flag=True, help="Take the service away; data stays.")
@click.option("--no-start", "is_not_started", is_flag=True, help="Neither enable nor start it.")
@click.option("--dry-run", "is_dry", is_flag=True, help="Show the steps; do none.")
@click.option(
    "--root",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write below DIR, for an image: no user is made, nothing is started.",
)
@answered
def install(
    user: str,
    name: str,
    config: str,
    home: str,
    is_removed: bool,
    is_not_started: bool,
    is_dry: bool,
    root: Path | None,
) -> Answer:
    """Make this machine run a node as a systemd service: user, directories, settings, unit.

    Settings that are there are kept. --uninstall stops and removes the service; data, settings and
    user stay.
    """
    from millstream.cli.install import plan

    _check_name(name)
    _check_name(user)
    options = plan.Options(
        program=_program(),
        user=user,
        name=name,
        config=_absolute(config, "--config"),
        home=_absolute(home, "--home"),
    )
    if is_removed:
        steps = plan.removal(options)
    else:
        steps = plan.installation(
            options,
            has_user=root is not None or _has_user(user),
            has_settings=_below(root, str(options.config)).exists(),
            is_started=not is_not_started and root is None,
        )
    if root is not None:
        steps = [step for step in steps if not step.command]
    data = {
        "steps": [step.describe() for step in steps],
        "is_done": not is_dry,
        "unit": plan.unit_text(options),
    }
    if is_dry:
        unit = "" if is_removed else f"\n\n{options.unit}:\n\n{plan.unit_text(options)}"
        return Answer(data, "\n".join(step.describe() for step in steps) + unit)
    _carry_out(steps, options, root)
    return Answer(data, "\n".join(step.describe() for step in steps))


def _carry_out(steps: "list[Step]", options: "Options", root: Path | None) -> None:
    import os
    import shutil

    from millstream.cli.install.plan import Kind

    if root is None and os.geteuid() != 0:
        raise Refused("this needs root: run it with sudo, or see the steps with --dry-run")
    if root is None and shutil.which("systemctl") is None:
        raise Refused("this machine has no systemd: run `millstream serve` by its own manager")
    for step in steps:
        path = _below(root, step.subject)
        match step.kind:
            case Kind.RUN:
                _run(step.command)
            case Kind.DIRECTORY:
                path.mkdir(mode=step.mode, parents=True, exist_ok=True)
                path.chmod(step.mode)
            case Kind.FILE:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(step.text, encoding="utf-8")
                path.chmod(step.mode)
            case Kind.REMOVE:
                path.unlink(missing_ok=True)
            case Kind.KEPT:
                pass
        if step.owner and root is None:
            shutil.chown(path, step.owner)


def _run(command: tuple[str, ...]) -> None:
    import subprocess

    try:
        subprocess.run(
            command, check=True, capture_output=True, text=True, timeout=COMMAND_TIMEOUT_S
        )
    except FileNotFoundError:
        raise Refused(f"this machine has no {command[0]}") from None
    except subprocess.CalledProcessError as problem:
        said = " ".join((problem.stderr or problem.stdout or "").split())
        raise Refused(f"{' '.join(command)} failed with {problem.returncode}: {said}") from None
    except subprocess.TimeoutExpired:
        raise Refused(
            f"{' '.join(command)} took more than {COMMAND_TIMEOUT_S} s; see: journalctl -u "
            f"{command[-1]}"
        ) from None


def _program() -> tuple[str, ...]:
    """The script beside this Python; without one, Python with the module."""
    script = Path(sys.executable).with_name("millstream")
    return (str(script),) if script.exists() else (sys.executable, "-m", "millstream")


def _has_user(name: str) -> bool:
    import pwd

    try:
        pwd.getpwnam(name)
    except KeyError:
        return False
    return True


def _check_name(text: str) -> None:
    if not text.replace("-", "").replace("_", "").isalnum() or text.startswith("-"):
        raise click.BadParameter(f"{text!r} is not a name of letters, digits, - and _.")


def _absolute(text: str, flag: str) -> PurePosixPath:
    path = PurePosixPath(text)
    if not path.is_absolute() or "\n" in text:
        raise click.BadParameter(f"{flag} takes an absolute path, not {text!r}.")
    return path


def _below(root: Path | None, path: str) -> Path:
    return Path(path) if root is None else root / path.lstrip("/")
