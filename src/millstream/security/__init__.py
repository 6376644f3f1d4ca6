"""Settings of security: how listeners are secured, which logins are taken, where secrets are."""
