"""A guard for listeners of tests: no login."""

from millstream.config import Config, Limits
from millstream.control.access import Access
from millstream.engine.access.authentication import Authentication
from millstream.metrics import Metrics
from millstream.server.listener_specs import listener_specs
from millstream.server.net.admission import Admission, Guard
from tests.support.nodes import fake_ports


def plain_guard(limits: Limits | None = None, *, is_tls: bool = False) -> Guard:
    config = Config() if limits is None else Config(limits=limits)
    authentication = Authentication(Access(), config, fake_ports(), Metrics())
    spec = listener_specs(config)[0]
    spec = spec._replace(transport=spec.transport._replace(is_tls=is_tls))
    return Guard(spec, Admission(config.limits, Metrics()), authentication)
