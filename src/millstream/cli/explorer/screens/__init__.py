"""Screens of the explorer and the widgets they share."""
