"""Figures as ratios beside a peer in the same interleaved run. `make bench` runs all, `make bench NAME=restart` one."""
