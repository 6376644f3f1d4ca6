"""The command line: stands outside of the node and starts it, or talks to one."""
