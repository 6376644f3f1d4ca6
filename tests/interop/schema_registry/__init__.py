"""Other people's clients of schema registries, against ours."""
