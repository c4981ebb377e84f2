"""The agent is PID 1 of a replica. It uses the standard library and `trainmaster.wire` only, on Python 3.9 or newer.

Its files:

- `start`: the first program of a pod: checks Python, sorts the variables
- `__main__`: wiring: what `python -m trainmaster_trainer.agent` does
- `agent_settings`: the one reading of the environment
- `supervise`: pure: (state, event) -> (state, actions)
- `engine`: the one loop: waits for events, steps the supervisor, carries out its actions
- `reporter`: heartbeats to the operator and orders back, in two threads
- `status_collector`: what heartbeats are made of: the supervisor's state, progress pages, the newest checkpoint
- `ranks`: the rank processes of one attempt: start, stop, how each came to its end
- `environment`: the variables of one rank, as torchrun would set them
- `rendezvous`: the listening socket that is offered for the next attempt; interface names
- `parent`: the agent's channel to the warm parent, and starting one
- `followers`: the processes that tell trackers of experiments what metrics.jsonl says
- `attempt_files`: progress pages, error files and the roster of one attempt
- `rank_store`: the store at which ranks meet, where this replica serves it
- `reactor`: waiting for descriptors, times and other threads
- `first_steps`: tells the operator at once when training begins
- `hangs`: pure: which rank has been quiet for too long, by the job's own step times
- `hang_watch`: looks at pages and processes for `hangs`, and keeps the stacks
- `stacks`: Python stacks of ranks that are stuck, and what they say
- `rank_death`: how a rank's death is heard of before its memory has gone
- `evidence`: exit status, error files and the kernel's out-of-memory counter: how a rank ended
- `output`: ranks' output, whole lines, never a reason for a rank to wait for ever
- `channel`: JSON lines and descriptors over a unix socket
- `main_module`: a script or a module as `__main__`, as Python itself runs it
- `optimizer_steps`: counts the optimizer steps of a script that knows nothing of Trainmaster
- `awaited_torch`: has that done in a process as soon as it has imported torch
- `any_python`: has that done in every Python that a rank starts, by `python_start/sitecustomize.py`
- `printed_figures`: what ranks print of their progress, by the job's own expressions
- `new_interpreter`: whether a program could tell that it was forked; then it gets a new interpreter
- `own_program`: the program with which such an interpreter finds our own packages
- `teardown`: what Python does to a program's modules at its end
- `children`: what the warm parent has forked: ranks at work, and more standing by
- `huge_pages`: the warm parent's memory, so that forks and ends are quick
- `rehearsal`: one throwaway step in a child that stands by
- `working_set`: copies of the pages that a rank like it has needed copies of
- `imports`: what a task imports: noted by a rank, and imported once more for later ones
- `learning`: when that is worth it, and `memory_left`: whether there is memory for it
- `branch`: the agent's channel to a process, forked from the warm parent, that has done so
- `warm`: the warm parent: imports torch once, forks ranks in milliseconds
- `rank_process`: what a rank's process does before and after the user's code
- `accelerate_launch`: has accelerate make the variables that its launcher would set
- `command`: pure: a command line to what is run in the forked child
- `rank_errors`: the error file, in which a rank says why it failed
- `process`: the few system calls that Python has no function for
"""
