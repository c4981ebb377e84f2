"""Write and read checkpoints that are complete, verified, and readable at any world size.

state.py      a model and its optimizer as named tensors and JSON, independent of world size and strategy
trees.py      any state_dict as named tensors and JSON; of_scripts.py: the state of a script made of them
shard.py      one rank's part as a safetensors file with its SHA-256
manifest.py   the JSON that makes shards a checkpoint
layout.py     folders, and the few ways in which anything on the disk is changed
stores/       where they lie, behind one protocol: a folder, private folders, an object store, memory, another job's
save.py       two-phase save in the background, into a store
load.py       read one folder, verified to the last byte
resume.py     the newest state of any store that all ranks find good

Nothing here reads or writes a pickle.
"""
