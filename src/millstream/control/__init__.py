"""Replicated state as pure folds: what exists in the cluster, remembered by one control log."""
