"""Installs a node as a service of systemd: a plan of steps, and its carrying out."""
