"""The paths that `ports.Files` takes: relative, `/` between the parts, `""` for the root.

Owns the one check that keeps every file under the root. Paths come from our own code, so a bad one
is our mistake and stops the node, with or without Python's `-O`.
"""


def split_path(path: str) -> list[str]:
    """Return the parts of `path`, none for the root; `AssertionError` if it could leave it."""
    if not path:
        return []
    parts = path.split("/")
    for part in parts:
        if part in {"", ".", ".."} or "\\" in part or "\0" in part:
            raise AssertionError(f"not a path under the root: {path!r}")
    return parts


def parent_of(path: str) -> str:
    """Return the directory that must be synced for `path` to be durable."""
    return path.rpartition("/")[0]
