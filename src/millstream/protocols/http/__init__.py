"""HTTP: REST, metrics and health. `routes.py` is the index of all routes."""
