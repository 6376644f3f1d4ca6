"""Commands that write, read and move records."""
