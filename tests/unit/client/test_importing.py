"""Importing the client is cheap: what is heavy comes with the first connection."""

import subprocess
import sys


def test_importing_the_client_loads_no_library_that_it_does_not_need_yet() -> None:
    heavy = ["confluent_kafka", "msgspec", "asyncio", "pydantic", "reactivex", "millstream.engine"]
    code = f"import sys, millstream.client; print([n for n in {heavy} if n in sys.modules])"

    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout.strip() == "[]"


def test_everything_in_the_public_face_is_there() -> None:
    from millstream import client

    assert [name for name in client.__all__ if not hasattr(client, name)] == []
