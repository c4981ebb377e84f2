"""Report to users: the status, its conditions, events, goodput and the story of a job."""
