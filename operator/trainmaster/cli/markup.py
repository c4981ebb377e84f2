"""Make HTML of which every text is escaped, by construction: only what this module has made is taken as it is."""

import html
from collections.abc import Iterable

from trainmaster.wire.printable import printable

_EMPTY = frozenset({"meta", "circle", "line", "polyline", "rect"})


class Markup(str):
    """Markup is HTML that this module has made. Any other text that is put into an element is escaped."""

    __slots__ = ()


def element(tag: str, /, *children: str | Iterable[str], **attributes: object) -> Markup:
    """Return an element. A trailing _ of an attribute's name is dropped (class_), and _ within it becomes -."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(printable(str(value)))}"'
        for key, value in attributes.items()
    )
    if tag in _EMPTY and not children:
        return Markup(f"<{tag}{given}/>")
    inner = "".join(
        _escaped(text) for child in children for text in ([child] if isinstance(child, str) else list(child))
    )
    return Markup(f"<{tag}{given}>{inner}</{tag}>")


def _escaped(text: str) -> str:
    return text if isinstance(text, Markup) else html.escape(printable(text))


def several(parts: Iterable[str]) -> Markup:
    """Return elements one after the other."""
    return Markup("\n".join(_escaped(part) for part in parts))
