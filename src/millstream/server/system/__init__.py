"""The machine below a node: clock, threads, descriptors, limits and the load of the loop."""
