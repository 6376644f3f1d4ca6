"""Traces of requests: settings, spans, and the names that OpenTelemetry has for their attributes.

Nothing here knows OpenTelemetry's SDK: `server/system/otlp.py` does, where tracing is on.
"""
