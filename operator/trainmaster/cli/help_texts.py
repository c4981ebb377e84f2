"""Show the help of `trainmaster`: commands in groups, and examples in lines of their own."""

import argparse
import re
import textwrap
from collections.abc import Mapping

GROUPS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("Begin", ("init", "convert", "check", "advise")),
    ("Train", ("run", "submit", "sweep")),
    ("Look", ("list", "status", "logs", "plot", "compare", "report", "explain")),
    ("Drive", ("wait", "stop", "resume", "scale", "delete")),
    ("Keep", ("export", "code", "audit")),
    ("Clusters and tools", ("render", "crd", "operator", "schema", "completion")),
)
_COLUMN = 12


class Formatter(argparse.HelpFormatter):
    """Keep paragraphs apart, and begin each example on a line of its own."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        marked = re.sub(r"\s*\bExample: ", "\n\nExample: ", text)
        parts = [" ".join(part.split()) for part in marked.split("\n\n")]
        return "\n\n".join(
            indent + part if part.startswith("Example: ") else textwrap.fill(part, width, initial_indent=indent)
            for part in parts
            if part
        ).replace("\n\nExample: ", "\nExample: ")


def overview(usage: str, about: str, helps: Mapping[str, str], epilog: str) -> str:
    """Return the help of the program itself."""
    lines = [usage, "", about]
    grouped = {name for _, names in GROUPS for name in names}
    others = tuple(name for name in helps if name not in grouped)
    for title, names in (*GROUPS, *([("Others", others)] if others else [])):
        lines += ["", f"{title}:", *(f"  {name.ljust(_COLUMN)}{helps[name]}" for name in names)]
    more = "trainmaster COMMAND --help says more about one, with an example."
    return "\n".join([*lines, "", more, "", *textwrap.wrap(epilog, 80), ""])
