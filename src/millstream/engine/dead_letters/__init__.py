"""Dead letters: written when a record is given up; listed, redriven, purged."""
