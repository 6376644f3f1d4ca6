"""The probes of `millstream doctor`."""
