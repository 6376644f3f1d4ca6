"""Settings of a blocking client: where the brokers are, how connections are protected, time limits.

Values only. Hashable, so that clients can be kept by their settings. Passwords do not show in
their `repr`.
"""

from dataclasses import dataclass, field

from millstream.model import Isolation

FETCH_BYTES = 4 * 2**20  # One Arrow batch of this size keeps Spark busy.
# An answer larger than this is a mistake: a fetch asks for a few MiB, but a batch comes whole.
ANSWER_BYTES_MAX = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How a broker's certificate is checked, and which certificate is shown to it. PEM."""

    ca_file: str | None = None  # None, and no `ca_pem`: the authorities that the system trusts.
    ca_pem: str | None = None
    certificate_file: str | None = None
    certificate_pem: str | None = field(default=None, repr=False)  # With its key.
    key_file: str | None = None  # None: the key lies in the certificate's file.
    key_password: str | None = field(default=None, repr=False)
    checks_certificate: bool = True
    checks_hostname: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class OAuth:
    """Where tokens come from: an endpoint that wants a client's id and secret, or `file:///...`."""

    endpoint: str
    client_id: str = ""
    client_secret: str = field(default="", repr=False)
    scope: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """A user of SASL; `sasl.MECHANISMS` has the names of mechanisms."""

    username: str
    password: str = field(repr=False)
    mechanism: str = "PLAIN"
    oauth: OAuth | None = None  # For OAUTHBEARER, which has no password.


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    bootstrap: tuple[tuple[str, int], ...]
    client_id: str = "millstream"
    # Millstream advertises its own APIs only to names that begin with "millstream".
    software_name: str = "millstream"
    tls: Tls | None = None
    credentials: Credentials | None = None
    answer_bytes_max: int = ANSWER_BYTES_MAX
    request_ms_max: int = 30_000
    patience_ms: int = 60_000  # How long an operation is tried again before it fails.
    backoff_ms: int = 100
    isolation: Isolation = Isolation.READ_COMMITTED
    fetch_bytes: int = FETCH_BYTES
    fetch_wait_ms: int = 500
