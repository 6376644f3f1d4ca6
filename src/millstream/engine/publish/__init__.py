"""Publishing by messages instead of batches, for protocols that know no batches."""
