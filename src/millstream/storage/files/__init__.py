"""Files: a real disk, memory that behaves like one, and the data directory."""
