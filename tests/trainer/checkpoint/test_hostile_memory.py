"""Slots and progress pages that anything may have written: each is read as what it was, or refused by its own error."""

import dataclasses
import itertools
import json
import math
import tracemalloc
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trainmaster.wire import codec
from trainmaster.wire.agent_states import AgentState
from trainmaster.wire.messages import Heartbeat, Rendezvous
from trainmaster.wire.progress_page import PHASES, SIZE, ProgressFile, ProgressPage
from trainmaster_trainer.agent.status_collector import rank_progress
from trainmaster_trainer.checkpoint import recall
from trainmaster_trainer.checkpoint.parts import Cut
from trainmaster_trainer.checkpoint.slot import (
    _HEAD,
    _MAGIC,
    PAGE,
    Head,
    LoadedSnapshot,
    Owner,
    SlotError,
    SnapshotSlot,
    look,
)
from trainmaster_trainer.checkpoint.state import State

MOST_MEMORY = 256 << 20
OFTEN = settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
TENSORS = {
    "model/w": torch.arange(12, dtype=torch.float32).reshape(3, 4),
    "model/mask": torch.tensor([True, False, True]),
    "optimizer/none": torch.empty(0, 5),
    "pending": torch.zeros(100, 5, dtype=torch.float64),
}
OWNER = Owner("uid", 1, 0, 2, replicated=True, part=0, parts=2)
SCALARS = {"optimizer": {"type": "SGD"}}
NUMBERS: st.SearchStrategy[Any] = st.one_of(
    st.sampled_from([0, -1, 1, 7, 63, 64, 1 << 20, 1 << 31, 1 << 50, (1 << 50) + 1, 1 << 63, 1 << 64, 1 << 200]),
    st.integers(),
    st.sampled_from([1.5, math.nan, math.inf, True, None, "1", [], {}]),
)
DTYPES = st.sampled_from(
    ["float32", "float64", "bool", "int8", "uint8", "complex64", "qint8", "bits16", "load", 5, None]
)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of a good slot."""
    path = tmp_path_factory.mktemp("slot") / "slot"
    text = json.dumps(SCALARS).encode()
    SnapshotSlot(path, OWNER, TENSORS, 1000, cuts={"model/w": Cut(0, 0, 6)}).write(7, TENSORS, text)
    return path.read_bytes()


def begin_of_tensors(head: Head) -> int:
    """Where the tensors begin in a file: at the first page after the layout and the room for scalars."""
    return -(-(PAGE + head.layout_length + head.room) // PAGE) * PAGE


def parts_of(data: bytes) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Owner, layout, and tensors."""
    _, mark, *numbers = _HEAD.unpack(data[: _HEAD.size])
    head = Head(mark - 1, *numbers)
    first, _, second = data[PAGE : PAGE + head.layout_length].partition(b"\n")
    return json.loads(first), json.loads(second), data[begin_of_tensors(head) :]


def signed(owner: Any, layout: Any, tensors: bytes, scalars: bytes = json.dumps(SCALARS).encode()) -> bytes:
    """A slot whose checksums are right, whatever it says."""
    text = b"\n".join(one if isinstance(one, bytes) else json.dumps(one).encode() for one in (owner, layout))
    numbers = Head(7, len(text), len(scalars), zlib.crc32(text), len(scalars), zlib.crc32(scalars))
    head = _HEAD.pack(_MAGIC, numbers.step + 1, *dataclasses.astuple(numbers)[1:]).ljust(PAGE, b"\0")
    return (head + text + scalars).ljust(begin_of_tensors(numbers), b"\0") + tensors


def read(path: Path, data: bytes) -> LoadedSnapshot | None:
    """The content, or None where it is refused."""
    path.write_bytes(data)
    try:
        snapshot = look(path)
        loaded = snapshot.load()
    except SlotError:
        return None
    for tensor in loaded.tensors.values():  # each byte of it can be read
        tensor.clone()
    recall._is_sound(snapshot, State(forms=loaded.model_shapes()), copied=True)
    recall.load([loaded], _Settings())  # type: ignore[arg-type]  # of these it reads no more
    return loaded


class _Settings:
    rank, world_size = 0, 2


def is_as_written(loaded: LoadedSnapshot) -> bool:
    return loaded.scalars == SCALARS and all(torch.equal(loaded.tensors[name], TENSORS[name]) for name in TENSORS)


def test_the_slot_itself_is_read(tmp_path: Path, whole: bytes) -> None:
    owner, layout, tensors = parts_of(whole)
    for data in (whole, signed(owner, layout, tensors)):
        loaded = read(tmp_path / "slot", data)
        assert loaded is not None
        assert is_as_written(loaded)


@given(begin=st.integers(0, 3 * PAGE), harm=st.binary(max_size=64), end=st.integers(0, 4 * PAGE))
@OFTEN
def test_any_other_bytes_are_refused_or_are_a_tensor_s(
    tmp_path: Path, whole: bytes, begin: int, harm: bytes, end: int
) -> None:
    """Tensors have no checksum: whoever writes them marks the slot as unfinished meanwhile."""
    data = whole[:begin] + harm + whole[begin + len(harm) :]
    loaded = read(tmp_path / "slot", data if end > len(data) else data[:end])
    assert loaded is None or (loaded.scalars == SCALARS and loaded.tensors.keys() == TENSORS.keys())


@given(
    st.sampled_from([*TENSORS]),
    st.tuples(
        DTYPES,
        st.one_of(st.lists(NUMBERS, max_size=4), NUMBERS),
        NUMBERS,
        st.one_of(st.none(), st.lists(NUMBERS, min_size=2, max_size=4)),
    ),
)
@OFTEN
def test_a_layout_of_any_values_is_refused_or_lies_in_the_file(
    tmp_path: Path, whole: bytes, name: str, values: tuple[object, ...]
) -> None:
    dtype, shape, start, cut = values
    owner, layout, tensors = parts_of(whole)
    for row in ([dtype, *layout[name][1:]], [*layout[name][:2], start, cut], [dtype, shape, start, cut]):
        read(tmp_path / "slot", signed(owner, {**layout, name: row}, tensors))


@given(member=st.sampled_from([*OWNER.__dataclass_fields__]), value=NUMBERS)
@OFTEN
def test_an_owner_of_any_values_is_refused_or_possible(
    tmp_path: Path, whole: bytes, member: str, value: object
) -> None:
    owner, layout, tensors = parts_of(whole)
    path = tmp_path / "slot"
    if read(path, signed({**owner, member: value}, layout, tensors)) is not None:
        seen = look(path).owner
        assert 0 <= seen.rank < seen.world_size <= 1 << 20
        assert 0 <= seen.part < seen.parts <= 1 << 20


# Made where they are used: hundreds of megabytes, which each process that collects tests would hold.
HUGE: dict[str, Callable[[], tuple[Any, Any]]] = {
    "layout_of_lists": lambda: (codec.to_plain(OWNER), b"[" + b"[]," * (20 << 20) + b"1]"),
    "layout_of_rows": lambda: (codec.to_plain(OWNER), b'{"a":[' + b"{}," * (20 << 20) + b"1]}"),
    "layout_deep": lambda: (codec.to_plain(OWNER), b"[" * (60 << 20)),
    "owner_deep": lambda: (b'{"a":' * (10 << 20), {}),
    "owner_long": lambda: (b'{"job":"' + b"x" * (60 << 20) + b'"}', {}),
    "many_dimensions": lambda: (codec.to_plain(OWNER), {"a": ["float32", [1 << 50] * 100_000, 0, None]}),
    "many_of_one": lambda: (codec.to_plain(OWNER), {"a": ["float32", [1] * 100_000, 0, None]}),
    "many_parts": lambda: ({**codec.to_plain(OWNER), "parts": 10**12}, {}),
    "empty_and_huge": lambda: (codec.to_plain(OWNER), {"a": ["float32", [0, 1 << 50, 1 << 50], 0, None]}),
    "beyond_the_file": lambda: (codec.to_plain(OWNER), {"a": ["float32", [1 << 40], 0, None]}),
}
NO_SCALARS: dict[str, Callable[[], bytes]] = {
    "deep": lambda: b"[" * (60 << 20),
    "objects": lambda: b"[" + b"{}," * (20 << 20) + b"1]",
    "a list": lambda: b"[1]",
    "nothing": lambda: b"",
    "no text": lambda: b"\xff",
}


@contextmanager
def little_memory() -> Iterator[None]:
    """What Python needs inside is bounded."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < MOST_MEMORY
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", HUGE)
def test_a_huge_layout_is_refused_in_little_memory(tmp_path: Path, kind: str) -> None:
    owner, layout = HUGE[kind]()
    (tmp_path / "slot").write_bytes(signed(owner, layout, b"", b"{}"))
    with little_memory(), pytest.raises(SlotError):
        look(tmp_path / "slot").load()


@pytest.mark.parametrize("kind", NO_SCALARS)
def test_scalars_that_are_none_are_refused_in_little_memory(tmp_path: Path, whole: bytes, kind: str) -> None:
    owner, layout, tensors = parts_of(whole)
    (tmp_path / "slot").write_bytes(signed(owner, layout, tensors, NO_SCALARS[kind]()))
    with little_memory(), pytest.raises(SlotError):
        look(tmp_path / "slot").load()


def test_parts_that_are_not_of_one_tensor_are_no_state(tmp_path: Path) -> None:
    """Each is whole by itself."""
    number = itertools.count()

    def snapshot(part: int, cut: Cut, tensor: torch.Tensor) -> LoadedSnapshot:
        path = tmp_path / f"{next(number)}"
        tensors = {"model/w": tensor, "pending": TENSORS["pending"]}
        owner = Owner("uid", 1, part, 2, replicated=True, part=part, parts=2)
        SnapshotSlot(path, owner, tensors, 100, cuts={"model/w": cut}).write(7, tensors, b"{}")
        return look(path).load()

    first, second = torch.ones(3, 4), torch.ones(3, 4)
    parts = [snapshot(0, Cut(0, 0, 6), first), snapshot(1, Cut(0, 3, 6), second)]
    joined = recall.load(parts, _Settings())  # type: ignore[arg-type]
    assert joined is not None
    assert joined.tensors["model/w"].shape == (6, 4)
    for cut, tensor in (
        (Cut(0, 2, 6), second), (Cut(0, 3, 7), second), (Cut(1, 0, 6), second),
        (Cut(0, 3, 6), torch.ones(3, 5)), (Cut(0, 3, 6), second.double()),
    ):  # fmt: skip
        assert recall.load([parts[0], snapshot(1, cut, tensor)], _Settings()) is None  # type: ignore[arg-type]


@given(st.data())
@OFTEN
def test_a_page_of_any_bytes_becomes_a_heartbeat(tmp_path: Path, data: st.DataObject) -> None:
    """JSON has neither NaN nor infinity, and the operator turns away what has."""
    path = str(tmp_path / "page")
    writer = ProgressFile(path, create=True)
    writer.write(ProgressPage(7, 0.5, 1000.0, 0.01, 123.0, "train", 5))
    begin = data.draw(st.one_of(st.integers(0, SIZE), st.sampled_from([16, 64, 96, 512, 544, 1024, 3072])))
    special = st.sampled_from([b"\xff" * 8, b"\0" * 6 + b"\xf0\x7f", b"\0" * 6 + b"\xf0\xff", b"\x80" * 8])
    harm = data.draw(st.one_of(st.binary(max_size=200), st.lists(special, min_size=1, max_size=11).map(b"".join)))
    content = Path(path).read_bytes()
    Path(path).write_bytes((content[:begin] + harm + content[begin + len(harm) :])[:SIZE])
    page = writer.read()
    record, problem = writer.read_checkpoint(), writer.read_problem()
    writer.close()
    assert page.phase in PHASES
    assert record is None or (record.step >= 0 and record.sha256.isalnum())
    assert problem[0] == 0 or problem[1]
    beat = Heartbeat(
        "ns/job",
        "uid",
        "worker",
        0,
        0,
        "pod",
        1,
        AgentState.RUNNING,
        1,
        Rendezvous(1, "k"),
        ranks=rank_progress({0: page}, {}),
    )
    assert codec.decode(Heartbeat, codec.encode(beat)).ranks[0].step == page.step
