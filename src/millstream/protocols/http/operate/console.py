"""The web console: the files of `millstream/console`, and the page that its addresses lead to.

The first request reads and packs the files, on a thread. They are served below a hash of them all,
so a browser keeps them for ever; the page itself is asked for each time and names the hash.
"""

import gzip
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from http import HTTPStatus
from importlib.resources import files
from importlib.resources.abc import Traversable
from posixpath import dirname, normpath
from typing import Final

from millstream.protocols.http.calls import Call
from millstream.protocols.http.problems import HttpProblem
from millstream.protocols.http.router import Needs, Params, RawReply, Route

STYLES: Final = ("tokens", "base", "parts", "pages", "narrow")  # In the order of the cascade.
FIRST_PAGE: Final = "pages/overview.js"
TYPES: Final = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
CONTENT_SECURITY_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_IMPORT = re.compile(rb"""^\s*(?:import|export)\s[^'";]*?from\s*['"](\.[^'"]+)['"]""", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PackedFile:
    kind: str
    plain: bytes
    packed: bytes


@dataclass(frozen=True, slots=True)
class Site:
    """All files, by their path, and the page that loads them."""

    number: str  # A hash of all files.
    files: Mapping[str, PackedFile]
    page: PackedFile


class Address(Params, frozen=True, kw_only=True):
    """The parts of an address below `/console`."""

    first: str = ""
    second: str = ""
    third: str = ""
    fourth: str = ""


def read_site(root: Traversable) -> Site:
    """Read and pack every file below `root`. Takes some 20 ms: not for the event loop."""
    contents = dict(_contents(root, ""))
    number = hashlib.blake2b(
        b"".join(name.encode() + b"\0" + contents[name] for name in sorted(contents)),
        digest_size=8,
    ).hexdigest()
    page = _page(contents, f"/console/{number}")
    packed = {name: _pack(name, data) for name, data in contents.items() if name != "index.html"}
    return Site(number=number, files=packed, page=_pack("index.html", page))


def imports_of(contents: Mapping[str, bytes], start: str) -> list[str]:
    """The modules that `start` imports, and those that these import, in the order of loading."""
    reached: dict[str, None] = {}
    waiting = [start]
    while waiting:
        name = waiting.pop(0)
        if name in reached or name not in contents:
            continue
        reached[name] = None
        base = dirname(name)
        waiting += [
            normpath(f"{base}/{path.decode()}".lstrip("/"))
            for path in _IMPORT.findall(contents[name])
        ]
    return list(reached)


async def serve(call: Call, params: Address) -> RawReply:
    """A file, if the address has the hash; else the page, which finds its way by itself."""
    site = await _site(call)
    takes_gzip = "gzip" in call.extra.get("accept-encoding", "")
    if params.first != site.number:
        if "." in (params.fourth or params.third or params.second) and not params.first.isalpha():
            raise HttpProblem(
                HTTPStatus.NOT_FOUND, "unknown_file", "this file is of another version: reload"
            )
        return _reply(
            site.page,
            takes_gzip,
            {"Cache-Control": "no-cache", "Content-Security-Policy": CONTENT_SECURITY_POLICY},
        )
    name = "/".join(part for part in (params.second, params.third, params.fourth) if part)
    file = site.files.get(name)
    if file is None:
        raise HttpProblem(HTTPStatus.NOT_FOUND, "unknown_file", f"the console has no file {name}")
    return _reply(file, takes_gzip, {"Cache-Control": "public, max-age=31536000, immutable"})


@cache
def _own_site() -> Site:
    return read_site(files("millstream").joinpath("console"))


async def _site(call: Call) -> Site:
    if _own_site.cache_info().currsize:
        return _own_site()
    return await call.services.threads.run(_own_site)


def _contents(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _contents(entry, f"{prefix}{entry.name}/")
        elif any(entry.name.endswith(ending) for ending in TYPES):
            yield prefix + entry.name, entry.read_bytes()


def _page(contents: Mapping[str, bytes], base: str) -> bytes:
    modules = dict.fromkeys(imports_of(contents, "app.js") + imports_of(contents, FIRST_PAGE))
    styles = "\n".join(f'<link rel="stylesheet" href="{base}/style/{name}.css">' for name in STYLES)
    preloads = "\n".join(f'<link rel="modulepreload" href="{base}/{name}">' for name in modules)
    page = contents["index.html"].decode()
    for name, text in (("{base}", base), ("{styles}", styles), ("{preloads}", preloads)):
        page = page.replace(name, text)
    return page.encode()


def _pack(name: str, data: bytes) -> PackedFile:
    kind = next(kind for ending, kind in TYPES.items() if name.endswith(ending))
    return PackedFile(kind=kind, plain=data, packed=gzip.compress(data, 9, mtime=0))


def _reply(file: PackedFile, takes_gzip: bool, headers: dict[str, str]) -> RawReply:
    if takes_gzip:
        headers = {**headers, "Content-Encoding": "gzip"}
    return RawReply(
        body=file.packed if takes_gzip else file.plain,
        kind=file.kind,
        headers={**headers, "Vary": "Accept-Encoding"},
    )


ROUTES = tuple(
    Route(
        method="GET",
        path="/console" + path,
        handler=serve,
        summary="The web console",
        params=Address,
        needs=Needs.NOTHING,
        is_raw=True,
        hidden=True,
    )
    for path in (
        "",
        "/{first}",
        "/{first}/{second}",
        "/{first}/{second}/{third}",
        "/{first}/{second}/{third}/{fourth}",
    )
)
