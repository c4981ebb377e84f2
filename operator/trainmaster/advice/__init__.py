"""Predict what a job will do and whether distributing pays, by the textbooks and a written cost model. It is pure.

`facts` has what is known of a model and a machine, `textbook` what kind each strategy is, `traffic` the bytes that it
sends, `memory` the bytes that it holds, `cost` how long a step takes, and `explanation` makes sentences of it all.
"""
