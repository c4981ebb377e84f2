"""Hold one policy per file: a function from facts to a verdict. Their order stands in core/decide.py."""
