"""The output of `millstream demo`."""
