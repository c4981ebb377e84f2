"""Turn jobs of other operators, and a command line of torchrun, into a TrainingJob, with a note on each field left out.

`readers.py` chooses who reads a document; each reader takes the fields that it knows out of a Source, and what nobody
has taken is told at the end, so that no field is dropped in silence.
"""
