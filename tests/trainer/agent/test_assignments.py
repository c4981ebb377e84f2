"""Which variables a program sets for itself, read off its source."""

from __future__ import annotations

from pathlib import Path

import pytest
from trainmaster_trainer.agent import assignments

TABLE = [
    ('os.environ["A"] = "1"', {"A": "1"}),
    ('environ["A"] = str(n)', {"A": None}),
    ('os.environ["A"] = os.environ["B"] = "2"', {"A": "2", "B": "2"}),
    ('os.environ.setdefault("A", "1")', {"A": "1"}),
    ('os.environ.update(A="1", **{"B": "2"})', {"A": "1"}),
    ('os.environ.update({"A": "1", "B": x})', {"A": "1", "B": None}),
    ('os.environ |= {"A": "1"}', {"A": "1"}),
    ('os.putenv("A", "1")', {"A": "1"}),
    ('del os.environ["A"]', {"A": None}),
    ('os.environ.pop("A", None)', {"A": None}),
    ('for name in ("A", "B"):\n    os.environ[name] = "1"', {"A": None, "B": None}),
    ('print(os.environ["A"], os.environ.get("B", "C"))', {}),
    ('values["A"] = "1"  # environ', {}),
    ('os.environ["A"] = (', {}),
]


@pytest.mark.parametrize(("source", "made"), TABLE)
def test_table(source: str, made: dict[str, str | None], tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(source)
    found = {one.name: one.value for one in assignments.made_by([tmp_path / "t.py"], [])}
    assert {name: found.get(name) for name in made} == made
    assert made or not found


def test_modules_of_the_programs_own_are_read_too(tmp_path: Path) -> None:
    """As far as they are imported, from wherever in the file; what is installed is not."""
    texts = {
        "t.py": "import sys, one as first\ndef f():\n    from package.two import (\n        g,\n    )\n",
        "one.py": "import os\nos.environ['ONE'] = '1'\nimport t",
        "package/__init__.py": "from . import three",
        "package/two.py": "import os\nos.environ['TWO'] = '2'",
        "package/three.py": "import os\nos.environ['THREE'] = '3'",
        "other.py": "import os\nos.environ['OTHER'] = '4'",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found = {one.name for one in assignments.made_by([tmp_path / "t.py"], [str(tmp_path)])}
    assert found == {"ONE", "TWO", "THREE"}
