"""Write and read checkpoints that are complete, verified, and readable at any world size.

state.py      a model and its optimizer as named tensors and JSON, independent of world size and strategy
trees.py      any state_dict as named tensors and JSON; of_scripts.py: the state of a script made of them
shard.py      one rank's part as a safetensors file with its SHA-256
manifest.py   the JSON that makes shards a checkpoint
layout.py     folders, and the few ways in which anything on the disk is changed
save.py       two-phase save in the background
load.py       newest good one, agreed among ranks

Nothing here reads or writes a pickle.
"""
