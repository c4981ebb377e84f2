"""JAX on the GPUs that its process was given, joined without arguments."""

import sys

import jax
import jax.numpy as jnp

jax.distributed.initialize()
assert jax.default_backend() == "gpu", jax.default_backend()
total = float(jnp.sum(jnp.ones(1000, device=jax.local_devices()[0])))
sys.stdout.write(f"sum over devices {total} {len(jax.devices())}\n")
