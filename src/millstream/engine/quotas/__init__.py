"""Client quotas: the limits, and what each client has used."""
