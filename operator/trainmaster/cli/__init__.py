"""Contain the command line: one file per command; `main.py` puts them together."""
