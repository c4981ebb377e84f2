"""Of the user: may be edited between two attempts."""
