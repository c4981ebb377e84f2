"""Tell the lines of metrics.jsonl to trackers of experiments, each by a process of its own: a follower.

The agent of the first worker starts one for each tracker (`agent/followers.py`), by the Python of the user's command,
which has the tracker's library. `tail` reads the file, `follower` is the process, and each other module speaks to one
tracker. Standard library only, and Python 3.9; a tracker's library is imported when there is something to tell.
"""
