"""What a job will do and whether it pays: the textbook's words and a written cost model. Pure; used by the CLI.

`facts` says what is known of a model and a machine, `textbook` what kind of thing each strategy is, `traffic` and
`memory` what it moves and holds, `cost` how long a step takes, `explanation` puts it into sentences.
"""
