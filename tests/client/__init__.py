"""The client against a broker that runs as a process."""
