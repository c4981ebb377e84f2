"""Contain the Kubernetes platform: the loop's `Platform` on a real cluster.

    kopf_handlers    kopf's handlers: start, login, job events, probe, end
    controller  puts the parts below together and runs them
    cluster_platform    observe, write_status, apply
    cache       what the API server said last, in slim frozen values
    job_sweep       what there is of the jobs that kopf's watch brings, and `swept_cache`, which keeps these
    informer    list and watch: keeps a cache of pods or other objects fresh; `scope_reader`: how far both have got
    pod_reading        a pod's JSON to core.observed.Replica; `waiting`: what keeps it from starting
    job_objects     what a job has beside its pods: its service, its network policy
    manifests   a job and a replica to a pod and a service; `variable_renaming` renames what the agent would obey
    client      requests to the API server; `api_connection` its address and credentials, `throttle` how many
    lease       which of several operators may write
    refusals    what the API server refused, and when to ask again
    reporting   Kubernetes events for people
    tokens      which pod sent a heartbeat
    access      the cluster as the user of a command reaches it; `submission` and `following` use it

It is the only package that imports kopf, kubernetes and jwt.
"""
