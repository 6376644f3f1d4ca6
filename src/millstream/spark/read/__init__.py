"""The source: which ranges a query reads, and how fetched batches become rows."""
