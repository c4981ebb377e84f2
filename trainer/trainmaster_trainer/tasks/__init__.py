"""Hold tasks on real data that needs no download, for examples, tests and first tries."""
