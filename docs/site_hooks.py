"""Prepare the pages for the site: links out of `docs/` become plain text, and the list of decisions is written.

MkDocs calls these functions by name (`hooks` in mkdocs.yml).
"""

import re
from pathlib import Path
from typing import Any

# Such a link leads into the checkout, which the site does not have.
_OUT_OF_DOCS = re.compile(
    r"\[(?P<text>[^\]]+)\]\((?:\.\./)+(?P<path>(?!decisions/|frameworks/|reference/)[^)#]+)[^)]*\)"
)
_LISTED = "<!-- the decisions -->"


def on_page_markdown(markdown: str, *, page: Any, config: Any, **_: Any) -> str:
    """Return the page's text as the site shows it."""
    docs = Path(config["docs_dir"])
    folder = (docs / page.file.src_uri).parent
    shown = _OUT_OF_DOCS.sub(lambda found: _text_of(found, folder, docs), markdown)
    return shown.replace(_LISTED, decisions(docs / "decisions"))


def _text_of(found: re.Match[str], folder: Path, docs: Path) -> str:
    """Return the link as it is where it stays within `docs`, else the path in the checkout."""
    target = (folder / re.sub(r"^.*\]\(|[#)].*$", "", found[0])).resolve()
    if target.is_relative_to(docs.resolve()):
        return found[0]
    path = target.relative_to(docs.resolve().parent)
    return f"{found['text']} (`{path}`)" if found["text"].strip("`") != str(path) else f"`{path}`"


def decisions(folder: Path) -> str:
    """Return a list of links to the decisions, by number."""
    pages = sorted(folder.glob("[0-9]*.md"))
    titles = [page.read_text().splitlines()[0].removeprefix("# ") for page in pages]
    return "\n".join(f"- [{page.stem[:4]}]({page.name}): {title}" for page, title in zip(pages, titles, strict=True))
