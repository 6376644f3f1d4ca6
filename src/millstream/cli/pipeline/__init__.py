"""The actions and the output of `millstream pipeline`."""
