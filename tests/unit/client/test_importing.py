"""Importing the client is cheap: what is heavy comes with the first connection."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "heavy"),
    [
        (
            "millstream.client",
            ["confluent_kafka", "msgspec", "asyncio", "pydantic", "reactivex", "millstream.engine"],
        ),
        (  # The way of `millstream produce` with one record.
            "millstream.client.extensions.single_record",
            ["confluent_kafka", "asyncio", "ssl", "http.client", "urllib.request", "tempfile"],
        ),
    ],
)
def test_importing_loads_no_library_that_is_not_needed_yet(module: str, heavy: list[str]) -> None:
    code = f"import sys, {module}; print([n for n in {heavy} if n in sys.modules])"

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "[]"


def test_everything_in_the_public_face_is_there() -> None:
    from millstream import client

    assert [name for name in client.__all__ if not hasattr(client, name)] == []
