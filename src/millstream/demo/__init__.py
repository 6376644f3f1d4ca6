"""The demonstration: a broker, orders, a pipeline on Spark, kill -9, and everything found again.

The public face of the package: `tell` does it and says what happened as values. What a terminal
makes of them is the command line's business. Nothing here knows a broker from inside.
"""

from millstream.demo.events import Event
from millstream.demo.failures import DemoFailed
from millstream.demo.tour import Plan, tell

__all__ = ["tell", "Plan", "Event", "DemoFailed"]
