"""What the engine's rooms share: waiting, alarms, back-off, background work, futures."""
