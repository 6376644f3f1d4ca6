"""Claims about consensus, one replica at a time."""
