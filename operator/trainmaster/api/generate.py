"""`make generate`: writes the CRD and its reference page anew. A house test holds both files to this.

Run as `python -m trainmaster.api.generate` from a checkout.
"""

from __future__ import annotations

from pathlib import Path

from trainmaster.api.reference import reference_page
from trainmaster.api.schema import crd_yaml
from trainmaster.wire import names

ROOT = Path(__file__).resolve().parents[3]


def generated() -> dict[Path, str]:
    """Every generated file of this package with what must be in it."""
    return {
        ROOT / "crds" / f"{names.GROUP}_{names.PLURAL}.yaml": crd_yaml(),
        ROOT / "docs" / "reference" / "trainingjob.md": reference_page(),
    }


def main() -> None:
    """Write them."""
    for path, content in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


if __name__ == "__main__":
    main()
