"""Dead letters: written when a record is given up, listed, sent back, purged."""
