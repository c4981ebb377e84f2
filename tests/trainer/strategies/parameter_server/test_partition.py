"""How parameters are divided among servers: all of them, once, and as evenly as whole tensors allow."""

import pytest
import torch
from torch import Tensor, nn
from trainmaster_trainer.errors import ConfigurationError
from trainmaster_trainer.flat_buffers import FlatLayout
from trainmaster_trainer.strategies.parameter_server.partition import divide
from trainmaster_trainer.strategies.parameter_server.whole import UndividedModel
from trainmaster_trainer.tasks.digits import Digits
from trainmaster_trainer.transport import frame
from trainmaster_trainer.transport.frame import Message
from typing_extensions import override


class Equal(Digits):
    """Twelve tensors of 10,000 numbers."""

    @override
    def model(self) -> nn.Module:
        return nn.Sequential(*(nn.Linear(100, 100, bias=False) for _ in range(12)))


def sent(whole: UndividedModel, index: int) -> int:
    """Bytes of tensors in the message with the gradient for a server."""
    tensors: list[Tensor] = FlatLayout.for_tensors(whole.part(index)).empty()
    _, views = frame.encode(Message("push", {}, tensors), b"key", b"caller", 0)
    return sum(map(len, views))


@pytest.mark.parametrize("servers", [1, 2, 3, 4, 6, 12])
def test_a_servers_bytes_shrink_as_one_nth(servers: int) -> None:
    whole = UndividedModel(Equal(), servers)
    assert [sent(whole, index) for index in range(servers)] == [12 * 40_000 // servers] * servers
    assert sorted(name for part in whole.parts for name in part) == sorted(whole.parameters)


def test_uneven_tensors_come_within_a_third_of_the_best() -> None:
    generator = torch.Generator().manual_seed(0)
    for servers in range(1, 9):
        sizes = {f"{n}": int(torch.randint(1, 1000, (1,), generator=generator)) for n in range(40)}
        most = max(sum(sizes[name] for name in part) for part in divide(sizes, servers))
        least = max(sum(sizes.values()) / servers, *sizes.values())  # no split can be below it
        assert most <= 4 / 3 * least


def test_more_servers_than_tensors_are_refused_with_the_number_that_fits() -> None:
    with pytest.raises(ConfigurationError, match="Lower it to 2 at most"):
        divide({"a": 1, "b": 1}, 3)
