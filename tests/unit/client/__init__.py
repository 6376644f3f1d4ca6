"""The pure parts of the client."""
