"""ParameterServer keeps the model on servers; workers pull it, compute a gradient and push it.

Centralized data parallelism (Li et al., "Scaling distributed machine learning with the parameter server", OSDI 2014).

    worker                                   server 0                        server 1
      | next (the last ticket is done) ------> ticket book
      | <------ ticket (step, share)
      | pull -----------------------------------> parameters of shard 0
      | pull --------------------------------------------------------------> parameters of shard 1
      | compute the gradient of the share
      | push -----------------------------------> optimizer of shard 0 ------> copy of shard 0
      | push --------------------------------------------------------------> optimizer of shard 1, and its copy

partition.py   which server holds which parameter
tickets.py     who computes which share of which step (pure)
shard.py       parameters, optimizer, and the tickets in them
options.py     the options in the YAML
server.py      what a server answers; its copy of a neighbour's shard
pending_requests.py      workers that wait for a ticket
ticket_queue.py        where they ask, and are answered
coordinator.py     what server 0 does besides: tickets, checkpoints, metrics, the end
whole.py       shards put together to a model, as a checkpoint has it
worker.py      the worker's loop

No server is a single point of failure where there are two: server i+1 keeps a live copy of shard i, which has a
gradient before its worker is told so. A server that comes back takes its shard from there; with one server alone, or
where both are lost, all go back to the newest checkpoint. Every shard carries the tickets that are in it, so that
whatever is missing anywhere is computed again, and nothing is added twice.
"""
