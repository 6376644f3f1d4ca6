"""HTTP requests as another library writes them, however the stream is cut."""

import h11
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.protocols.http.wire.requests import Limits, Request, Requests
from tests.support.tiers import sized

LIMITS = Limits(header_bytes_max=400, headers_max=10, body_bytes_max=100)
tokens = st.text("abcXYZ-", min_size=1, max_size=8)
values = st.text("abc 123;=/", max_size=10).map(str.strip)


@settings(max_examples=sized(50))
@given(st.dictionaries(tokens, values, max_size=5), st.binary(max_size=50), st.integers(1, 30))
def test_what_h11_sends_is_read(headers: dict[str, str], body: bytes, piece: int) -> None:
    named = {name.lower(): value for name, value in headers.items() if "content" not in name}
    client = h11.Connection(h11.CLIENT)
    sent = client.send(
        h11.Request(
            method="POST",
            target="/records",
            headers=[("Host", "x"), ("Content-Length", str(len(body))), *named.items()],
        )
    )
    sent += client.send(h11.Data(body)) + client.send(h11.EndOfMessage())

    requests = Requests(LIMITS)
    pieces = (sent[at : at + piece] for at in range(0, len(sent), piece))
    (request,) = (whole for part in pieces for whole in requests.feed(part))

    assert isinstance(request, Request)
    assert request.body == body
    assert {name: request.headers[name] for name in named} == named
