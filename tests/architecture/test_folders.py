"""Folders stay small, and no module is kept for the sake of a number.

The exceptions are those of today, with their reasons. A change may shorten these tables only.
"""

from collections import Counter
from pathlib import PurePosixPath

from tests.support.imports import module_name, users
from tests.support.source_tree import SOURCE, modules

FOLDER_MODULES_MAX = 15
SMALL_MODULE_LINES = 40

LARGER_FOLDERS: dict[str, tuple[int, str]] = {}
SMALL_WITH_ONE_USER = {
    "protocols/flymq/router.py": "every protocol has its table of handlers in router.py",
    "spark/pipelines/project.py": "stands beside its templates, below the command that calls it",
    "testing/clock.py": "public: users set the time of an embedded broker with it",
}


def is_part(path: str) -> bool:
    """`__init__.py` and `__main__.py` say what a package is, they are not in its count."""
    return not PurePosixPath(path).name.startswith("__")


def test_folders_stay_small() -> None:
    sizes = Counter(PurePosixPath(path).parent.as_posix() for path in modules() if is_part(path))
    limits = {folder: limit for folder, (limit, _) in LARGER_FOLDERS.items()}

    too_large = {
        folder: size
        for folder, size in sizes.items()
        if size > limits.get(folder, FOLDER_MODULES_MAX)
    }

    assert too_large == {}, "cut the folder by capability"


def test_no_small_module_has_a_single_user() -> None:
    lines = {path: (SOURCE / path).read_text(encoding="utf-8").count("\n") for path in modules()}
    single = {
        path: sorted(users()[module_name(path)])
        for path, size in lines.items()
        if is_part(path) and size < SMALL_MODULE_LINES and len(users()[module_name(path)]) == 1
    }

    assert {path: user for path, user in single.items() if path not in SMALL_WITH_ONE_USER} == {}, (
        "fold the module into its user"
    )


def test_exceptions_name_what_exists() -> None:
    names = [*LARGER_FOLDERS, *SMALL_WITH_ONE_USER]

    assert [name for name in names if not (SOURCE / name).exists()] == []
