"""Print what the offline files of Weights & Biases in a folder hold, in the order of their folders: ids and points.

A file has a head of seven bytes, and then the blocks of LevelDB's logs. Its records are messages of the library.
"""

import json
import struct
import sys
from pathlib import Path

from wandb.proto.wandb_internal_pb2 import Record

_BLOCK, _HEAD = 32768, 7
_WHOLE, _LAST = 1, 4


def records(data):
    position, record = _HEAD, b""
    while position + _HEAD <= len(data):
        left = _BLOCK - position % _BLOCK
        if left < _HEAD:
            position += left
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        record += data[position + _HEAD : position + _HEAD + length]
        position += _HEAD + length
        if kind in (_WHOLE, _LAST):
            yield Record.FromString(record)
            record = b""


runs, points, configuration = [], [], {}
for path in sorted(Path(sys.argv[1]).glob("offline-run-*/*.wandb")):
    for record in records(path.read_bytes()):
        if record.HasField("run"):
            runs.append(record.run.run_id)
            configuration |= {one.key: json.loads(one.value_json) for one in record.run.config.update}
        if record.HasField("history"):
            items = record.history.item
            points.append({one.key or one.nested_key[0]: json.loads(one.value_json) for one in items})
print(json.dumps({"runs": runs, "points": points, "configuration": configuration}))
