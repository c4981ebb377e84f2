"""`make generate` calls this: writes docs/strategies.md from the pages of the strategies and the benches' results.

Figures come from bench/results/*.json alone; a measurement that was not made is not in the page.
"""

import json
from pathlib import Path
from string import Formatter
from typing import Any

from trainmaster.advice.pages.strategy_page import StrategyPage
from trainmaster.advice.textbook import TEXTBOOK, taxonomy
from trainmaster.wire.strategies import module_of

FOLDER = Path(__file__).parent
PAGE = FOLDER / "strategies.md"
PLOTS = FOLDER / "plots"
_SOURCES = "../trainer/trainmaster_trainer/strategies"
RESULTS = FOLDER.parent / "bench" / "results"

_HEAD = """# The strategies

One word in the YAML, `spec.strategy.type`; everything else stays the same. `trainmaster explain JOB.yaml` says the
same of your own job, in its own numbers, and `trainmaster advise JOB.yaml` which one to take on the machine at hand.

Data parallel: every rank has the model, and its own part of each batch. Model parallel: every rank has a part of the
model. Synchronous: all wait for one another, at every step (with the loss of one device then) or at every meeting.
Asynchronous: nobody waits, and gradients may be older than the model that they change. Centralized: all talk to one
place; decentralized: to one another.

How a step computes is another choice, and the same under nearly all of them ([decision
0120](decisions/0120-numerics-of-our-own.md)): `training.precision` (`BF16`, or `FP16` with a loss scale),
`training.maxGradientNorm` (the whole model's gradient is shortened, wherever its parts are) and
`training.microBatchSize` (a rank's share of the batch in parts that fit into its memory). What cannot be is refused
with the reason: no FP16 where ranks take steps of their own, no norm over several synchronous servers, no
`microBatchSize` for a pipeline (it has `microBatches`); on TPUs neither FP16 nor `microBatchSize`.

(Written from `operator/trainmaster/advice/pages/` and `bench/results/` by `make generate`;
not edited by hand. In the formulas, S are the bytes of all gradients, P of all parameters, A of the activations that
leave a layer for a whole batch, N the number of ranks.)

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
    (
        "AllReduce",
        "links_series",
        (
            "{ranks} ranks on {megabits} Mbit/s links, two to each: driver {driver_to_ring:.1f} times the ring's time,"
            " {driver_to_hierarchical:.1f} times the hierarchy's."
        ),
    ),
    (
        "AllReduce",
        "throughput",
        "{kept[AllReduce]:.2f} of the samples/s remain when one of 4 workers is 4 times slower.",
    ),
    ("AllReduce", "reproducible", "`reproducible: true` makes a step {ratio:.2f} times as long (two ranks, text)."),
    (
        "ParameterServer",
        "parameter_server",
        (
            "Sync against torch's own RPC example: {ratio_deep:.1f} times the steps with 162 tensors, {ratio:.1f} with "
            "6 small ones, {ratio_large:.1f} with 6 large ones (4.6 MB)."
        ),
    ),
    (
        "ParameterServer",
        "straggler",
        "Async with one of 4 workers 4 times slower: {ratio:.2f} times the steps of Sync.",
    ),
    ("ParameterServer", "servers", "4 servers behind {megabits} Mbit/s each: {ratio:.1f} times the steps of one."),
    (
        "ParameterServer",
        "throughput",
        "Async: {kept[ParameterServer]:.2f} of the samples/s remain when one of 4 workers is 4 times slower.",
    ),
    ("Gossip", "throughput", "{kept[Gossip]:.2f} of the samples/s remain when one of 4 workers is 4 times slower."),
    ("LocalSGD", "throughput", "{kept[LocalSGD]:.2f} of the samples/s remain when one of 4 workers is 4 times slower."),
    (
        "Gossip",
        "straggler",
        "With one of 4 workers 4 times slower: {gossip:.2f} times the steps of synchronous training.",
    ),
    ("FullySharded", "model_parallel", "A step against the same by hand under torchrun: {fully_sharded:.2f} times."),
    ("Pipeline", "model_parallel", "A step against the same by hand under torchrun: {pipeline:.2f} times."),
    ("Tensor", "model_parallel", "A step against the same by hand under torchrun: {tensor:.2f} times."),
)

# Plot, where it is shown ("" is before all strategies), and what one sees on it.
PLOTTED: tuple[tuple[str, str, str], ...] = (
    (
        "loss_curves",
        "",
        (
            "Loss against samples. Who waits for all at every step lies on the line of one device; ParameterServer"
            " (Async) takes a step for each worker's share, so more and smaller ones."
        ),
    ),
    (
        "throughput",
        "",
        "Samples per second as workers are added: a straggler costs the asynchronous only its own share.",
    ),
    ("advise", "", "How well `trainmaster advise` predicts: each dot is one job, on the line the prediction is exact."),
    ("all_reduce", "AllReduce", "An all-reduce through the memory of one host, against gloo."),
    ("links_series", "AllReduce", "The driver's link carries more with every rank; ring and hierarchy stay level."),
    ("servers", "ParameterServer", "More servers share the traffic that was too much for one server's link."),
)


def strategies_page() -> str:
    """The page."""
    rows = [
        f"| [{name}](#{name.lower()}) | {r.parallel} | {_timing(name, r)} | {r.centre} |"
        for name, r in TEXTBOOK.items()
    ]
    sections = (_section(name, row) for name, row in TEXTBOOK.items())
    return "\n".join([_HEAD + "\n".join(rows), "", *_plots(""), *sections])


def _timing(name: str, row: StrategyPage) -> str:
    other = taxonomy(name, {"update": "Sync"})
    return row.timing if other == row.taxonomy else f"{row.timing}, or synchronous"


def _plots(where: str) -> list[str]:
    """Those of a strategy that `make bench` has drawn."""
    drawn = [(name, told) for name, place, told in PLOTTED if place == where and (PLOTS / f"{name}.svg").exists()]
    return [f"![{told}](plots/{name}.svg)\n\n{told}\n" for name, told in drawn]


def _section(name: str, row: StrategyPage) -> str:
    source = module_of(name)
    source += "" if (FOLDER / _SOURCES / source).is_dir() else ".py"
    lines = [
        f"## {name}",
        "",
        f"{row.title}: {row.taxonomy}. {row.source}. Source: [{source}]({_SOURCES}/{source}).",
        "",
        "```mermaid",
        row.picture,
        "```",
        "",
        f"{row.holds} {row.talks}",
        "",
        "```yaml",
        f"strategy: {row.yaml}",
        "```",
        "",
        f"- Take it when: {_lower(row.take)}",
        f"- Leave it when: {_lower(row.leave)}",
        f"- It costs: {row.traffic}.",
        f"- It holds: {row.memory}.",
        f"- When something dies: {_lower(row.failure)}",
        *(f"- Measured: {figure}" for figure in _figures(name)),
        "",
        *_plots(name),
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
    return {member.partition("[")[0] for _, member, _, _ in Formatter().parse(sentence) if member}


def _result(name: str) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return found


def write() -> None:
    """Write the page anew."""
    PAGE.write_text(strategies_page())


if __name__ == "__main__":
    write()
