"""Predict what a job will do and whether distributing pays, by the textbooks and a written cost model. It is pure.

`model_facts` has what is known of a model and a machine, `textbook` what kind each strategy is, `traffic` the bytes
that it sends, `memory_needs` the bytes that it holds, `cost` how long a step takes, and `explanation` makes sentences
of it all.
"""
