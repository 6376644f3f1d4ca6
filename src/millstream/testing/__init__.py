"""A real broker for tests: `with run_broker() as broker:`, and faults to inject.

The public face of the package. The fixtures for pytest are `millstream.pytest_plugin`'s.
"""

from millstream.testing.broker import RunningBroker, run_broker
from millstream.testing.cluster import RunningCluster
from millstream.testing.lives import CannotDoThis, NotRunning
from millstream.testing.lost_acks import LostAcks

__all__ = [
    "run_broker",
    "RunningBroker",
    "RunningCluster",
    "LostAcks",
    "CannotDoThis",
    "NotRunning",
]
