"""The schema registry: versions of schemas by subject, ids, compatibility, checks of records."""
