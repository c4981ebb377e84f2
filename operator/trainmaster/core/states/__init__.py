"""Hold the vocabulary: what a platform sees and can be asked for, the phases of a job, a rule's answer."""
