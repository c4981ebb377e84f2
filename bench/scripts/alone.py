"""One trainer's computing without any exchange: as fast as any parameter server could be at the most.

Arguments: steps, hidden width, hidden layers. Prints steps/s. Model and loop are those of rpc_parameter_server.py.
"""

import sys

from rpc_parameter_server import compute, make_model  # type: ignore[import-not-found]  # its neighbour in this folder


def main() -> None:
    """Forward and backward, again and again."""
    steps, width, layers = (int(argument) for argument in sys.argv[1:4])
    print(compute(make_model(width, layers), steps, lambda model: model), flush=True)


if __name__ == "__main__":
    main()
