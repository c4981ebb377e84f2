"""Define what processes say to one another, and every name they share.

Standard library only and Python 3.9 syntax: the agent imports this package inside images that are not ours.
"""
