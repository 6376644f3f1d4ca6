"""FlyMQ's frames and bodies. Pure."""
