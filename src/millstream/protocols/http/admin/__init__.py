"""Admin REST under `/v1`: a module for each noun, with its types, handlers and routes."""
