"""An environment for each version of Spark, made once with venv and pip in the user's cache.

Each has what `pip install 'millstream[spark]'` brings, with another Spark; the package itself comes
from the source tree.
"""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

from tests.support.source_tree import ROOT

INSTALL_SECONDS_MAX = 900
# The last release of each minor version, besides the one that `make test` has.
VERSIONS = ("4.0.5", "4.1.4", "4.2.1")
TOO_OLD = "3.5.9"


def environment(version: str) -> Path:
    """The Python of the environment with this Spark."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    minor = "{}.{}".format(*sys.version_info)
    home = base / "millstream" / "spark-environments" / f"{version}-py{minor}"
    python, stamp = home / "bin" / "python", home / ".requirements"
    listing = "\n".join(requirements(version))
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == listing:
        return python
    _run(sys.executable, "-m", "venv", home)
    _run(python, "-m", "pip", "install", "--quiet", *requirements(version))
    stamp.write_text(listing, encoding="utf-8")
    return python


def requirements(version: str) -> list[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    requirements = [*project["dependencies"], *project["optional-dependencies"]["spark"]]
    return [
        *(name for name in requirements if not name.startswith("pyspark")),
        f"pyspark=={version}",
    ]


def _run(*command: object) -> None:
    subprocess.run(list(map(str, command)), check=True, timeout=INSTALL_SECONDS_MAX)
