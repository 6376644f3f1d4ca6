"""The FlyMQ door: its wire format, and the handlers behind it. `gateway` is the way in."""
