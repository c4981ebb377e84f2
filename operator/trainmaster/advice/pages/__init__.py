"""Hold a page for each strategy, under its name in small letters: `textbook.py` finds it there."""
