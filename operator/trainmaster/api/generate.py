"""Write the CRD and its reference page, for `make generate`. A house test checks that both files are up to date.

Run it as `python -m trainmaster.api.generate` from a checkout.
"""

from __future__ import annotations

from pathlib import Path

from trainmaster.api.reference import reference_page
from trainmaster.api.schema import crd_yaml
from trainmaster.wire import names

ROOT = Path(__file__).resolve().parents[3]


def generated() -> dict[Path, str]:
    """Return each generated file of this package with its content."""
    return {
        ROOT / "crds" / f"{names.GROUP}_{names.PLURAL}.yaml": crd_yaml(),
        ROOT / "docs" / "reference" / "trainingjob.md": reference_page(),
    }


def main() -> None:
    """Write the generated files."""
    for path, content in generated().items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)


if __name__ == "__main__":
    main()
