"""One module for each family of FlyMQ requests."""
