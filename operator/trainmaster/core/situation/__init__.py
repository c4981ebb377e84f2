"""Find out what is so: the facts of one look at a job, without any decision."""
