"""`make generate` calls this: writes docs/strategies.md from the textbook table, the pictures and the benches' results.

Figures come from bench/results/*.json alone; a measurement that was not made is not in the page.
"""

import json
from pathlib import Path
from string import Formatter
from typing import Any

from trainmaster.advice.textbook import TEXTBOOK, Row

from docs.strategy_pictures import PICTURES

FOLDER = Path(__file__).parent
PAGE = FOLDER / "strategies.md"
PLOTS = FOLDER / "plots"
RESULTS = FOLDER.parent / "bench" / "results"

_HEAD = """# The strategies

One word in the YAML, `spec.strategy.type`; everything else stays the same. Written from
`operator/trainmaster/advice/textbook.py`, `docs/strategy_pictures.py` and `bench/results/` by `make generate`; not
edited by hand. `trainmaster explain JOB.yaml` says the same of your own job, in its own numbers, and `trainmaster
advise JOB.yaml` which one to take on the machine at hand.

| type | parallel | timing | centre |
|---|---|---|---|
"""

# Which bench shows what about which strategy: (type, result file, sentence with the result's members).
FIGURES: tuple[tuple[str, str, str], ...] = (
    ("AllReduce", "all_reduce", "All-reduce between two ranks of one host at 1 MiB: {at_1_mib:.1f} times gloo."),
    ("AllReduce", "data_parallel", "A communication-bound model on two ranks: {ratio:.2f} times DDP with gloo."),
    (
        "AllReduce",
        "data_parallel",
        "A compute-bound one: {efficiency:.2f} of two times one rank; {ceiling:.2f} where the two exchange nothing.",
    ),
    ("AllReduce", "driver_ring", "Driver against ring, 8 ranks behind shaped links: {ratio:.2f} times as long."),
    ("AllReduce", "reproducible", "`reproducible: true` makes a step {ratio:.2f} times as long (two ranks, text)."),
    ("ParameterServer", "parameter_server", "Sync against torch's own RPC example: {ratio:.1f} times the steps."),
    ("ParameterServer", "straggler", "Async with one of 4 workers 4 times slower: {ratio:.2f} times sync."),
    ("Gossip", "straggler", "Under the same straggler: {gossip:.2f} times sync."),
    ("FullySharded", "model_parallel", "A step against the same by hand under torchrun: {fully_sharded:.2f} times."),
    ("Pipeline", "model_parallel", "A step against the same by hand under torchrun: {pipeline:.2f} times."),
    ("Tensor", "model_parallel", "A step against the same by hand under torchrun: {tensor:.2f} times."),
)


def strategies_page() -> str:
    """The page."""
    rows = [f"| [{name}](#{name.lower()}) | {r.parallel} | {r.timing} | {r.centre} |" for name, r in TEXTBOOK.items()]
    sections = (_section(name, row) for name, row in TEXTBOOK.items())
    return "\n".join([_HEAD + "\n".join(rows), "", *_plots(), *sections])


def _plots() -> list[str]:
    """All that `make bench` has drawn."""
    return [f"![{plot.stem.replace('_', ' ')}](plots/{plot.name})\n" for plot in sorted(PLOTS.glob("*.svg"))]


def _section(name: str, row: Row) -> str:
    lines = [
        f"## {name}",
        "",
        f"{row.title}: {row.taxonomy}. {row.source}.",
        "",
        "```mermaid",
        PICTURES[name],
        "```",
        "",
        f"{row.holds} {row.talks}",
        "",
        f"- Take it when: {_lower(row.take)}",
        f"- Leave it when: {_lower(row.leave)}",
        f"- When something dies: {_lower(row.failure)}",
        *(f"- Measured: {figure}" for figure in _figures(name)),
        "",
    ]
    return "\n".join(lines)


def _lower(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _figures(name: str) -> list[str]:
    """Sentences of the results that are there and have what the sentence quotes."""
    told = []
    for strategy, result_name, sentence in FIGURES:
        result = _result(result_name)
        if strategy == name and _members(sentence) <= result.keys():
            told.append(f"{sentence.format(**result)} ({result['date'][:10]}, load {result['load'][0]})")
    return told


def _members(sentence: str) -> set[str]:
    """What it quotes. A result of an older form may lack some."""
    return {member for _, member, _, _ in Formatter().parse(sentence) if member}


def _result(name: str) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def write() -> None:
    """Write the page anew."""
    PAGE.write_text(strategies_page())


if __name__ == "__main__":
    write()
