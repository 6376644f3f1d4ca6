"""Commands that run, check and repair a node, and set up the command line itself."""
