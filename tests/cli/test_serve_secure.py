"""`millstream serve --secure` prints settings with which a client gets in."""

import os
import subprocess
import sys
from pathlib import Path

FREE_PORTS = ("--port", "0", "--flux-port", "0", "--classic-port", "0", "--http-port", "0")


def test_the_python_client_gets_in_as_it_is_printed(tmp_path: Path) -> None:
    command = (sys.executable, "-m", "millstream", "serve", "--secure")
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("MILLSTREAM_")}
    process = subprocess.Popen(
        [*command, "--data-dir", str(tmp_path / "data"), *FREE_PORTS],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env=inherited,
        cwd=tmp_path,
    )
    assert process.stdout is not None
    try:
        printed: list[str] = []
        for line in process.stdout:
            printed.append(line)
            if line.startswith("this machine:"):
                break
        for words in ("librdkafka", "Java, Spark", "Python:"):
            assert any(line.startswith(words) for line in printed), printed
        lines = printed[printed.index("Python:\n") + 1 : -2]
        password = (tmp_path / "data" / "initial-admin-password").read_text().strip()
        program = "".join(line.removeprefix("  ") for line in lines).replace(
            '"..."', repr(password)
        )
        done = subprocess.run(
            [sys.executable, "-c", f"{program}\nprint(client.users.who_am_i().principal)"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=tmp_path,
        )
    finally:
        process.terminate()
        process.wait(30)
        process.stdout.close()

    assert done.stdout.strip() == "User:admin", done.stderr
