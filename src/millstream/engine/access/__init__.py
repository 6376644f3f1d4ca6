"""Who clients are: logins, users, and what is remembered of failures."""
