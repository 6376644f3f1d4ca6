"""Every error of the engine has a status of its own; none is taken for our mistake."""

import pkgutil
from collections.abc import Iterator
from http import HTTPStatus
from importlib import import_module

import millstream.errors
from millstream.errors import RequestError
from millstream.protocols.http.problems import ERRORS


def subclasses(kind: type[RequestError]) -> Iterator[type[RequestError]]:
    for each in kind.__subclasses__():
        if each.__module__.startswith("millstream.errors"):
            yield each
            yield from subclasses(each)


def test_every_request_error_is_mapped() -> None:
    for module in pkgutil.iter_modules(millstream.errors.__path__):
        import_module(f"millstream.errors.{module.name}")

    unmapped = {
        each.__name__
        for each in subclasses(RequestError)
        if not any(kind in ERRORS for kind in each.__mro__)
    }

    assert unmapped == set()


def test_no_error_of_the_engine_is_a_mistake_of_ours() -> None:
    assert HTTPStatus.INTERNAL_SERVER_ERROR not in set(ERRORS.values())
