"""Hold the two regimes: all members of a job train and restart together, or each for itself."""
