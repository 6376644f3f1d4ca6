"""The demonstration: a broker, orders, a pipeline on Spark, kill -9, all records counted again.

The public face of the package: `run` yields its events as values; the command line prints them.
Only public APIs are used: nothing here knows a broker from inside.
"""

from millstream.demo.events import Event
from millstream.demo.failures import DemoFailed
from millstream.demo.tour import Plan, run

__all__ = ["run", "Plan", "Event", "DemoFailed"]
