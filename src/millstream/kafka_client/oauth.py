"""Fetches tokens for SASL OAUTHBEARER: from a token endpoint (RFC 6749, 4.4) or from a file.

As Kafka's own client: id and secret go in the header, and `file:` names a file with a token that
something else keeps fresh. Every connection fetches its token, so none is older than the
connection.
"""

import base64
import json
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote, unquote, urlencode, urlsplit

from millstream.kafka_client.errors import AuthenticationFailed
from millstream.kafka_client.settings import OAuth

ANSWER_BYTES_MAX = 2**20
TIMEOUT_S = 30.0


def fetch_token(oauth: OAuth) -> str:
    """Raises `AuthenticationFailed` if there is no token to be had."""
    parts = urlsplit(oauth.endpoint)
    token = _from_file(Path(unquote(parts.path))) if parts.scheme == "file" else _granted(oauth)
    if not token or not token.isascii() or not token.isprintable():
        raise AuthenticationFailed(f"{oauth.endpoint} holds no token")
    return token


def _from_file(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(ANSWER_BYTES_MAX).strip()
    except (OSError, UnicodeDecodeError) as problem:
        raise AuthenticationFailed(f"the token in {path} cannot be read: {problem}") from None


def _granted(oauth: OAuth) -> str:
    client = f"{quote(oauth.client_id, safe='')}:{quote(oauth.client_secret, safe='')}"
    form = {"grant_type": "client_credentials"}
    if oauth.scope:
        form["scope"] = oauth.scope
    request = urllib.request.Request(
        oauth.endpoint,
        data=urlencode(form).encode(),
        headers={
            "Authorization": "Basic " + base64.b64encode(client.encode()).decode(),
            "Content-Type": "application/x-www-form-urlencoded",
            "Accept": "application/json",
        },
    )
    try:
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            answer = json.loads(response.read(ANSWER_BYTES_MAX))
    except urllib.error.HTTPError as problem:
        with problem:
            raise AuthenticationFailed(
                f"{oauth.endpoint} gives no token to {oauth.client_id!r}: HTTP {problem.code}"
            ) from None
    except (OSError, ValueError) as problem:
        raise AuthenticationFailed(f"no token from {oauth.endpoint}: {problem}") from None
    token = answer.get("access_token") if isinstance(answer, dict) else None
    return token if isinstance(token, str) else ""
