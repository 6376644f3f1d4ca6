"""The FlyMQ protocol: wire format, gateway and handlers."""
