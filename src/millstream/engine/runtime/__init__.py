"""Shared by all of the engine: waiters, alarms, backoff, background tasks, futures."""
