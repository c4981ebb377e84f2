"""A package with a module to run by `python -m`."""
