"""`python -m rightsizer_api.generate [--check]`: writes the CRD, the report's schema and the reference."""

import argparse
import functools
import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from rightsizer_api.crd import crd_yaml
from rightsizer_api.reference import reference
from rightsizer_api.report import PlanReport

__all__ = ["generated", "main", "stale"]

_REPOSITORY = Path(__file__).parents[2]


@functools.cache
def generated() -> Mapping[str, str]:
    """Every generated file: its path in the repository and its content."""
    return {
        "helm/rightsizer/crds/trainingplans.rightsizer.dev.yaml": crd_yaml(),
        "crds/plan-report.schema.json": report_schema(),
        "docs/plan-reference.md": reference(),
    }


def report_schema() -> str:
    """The report's JSON schema (2020-12)."""
    schema = PlanReport.model_json_schema(by_alias=True, mode="serialization")
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    return json.dumps(head | schema, indent=2) + "\n"


def stale(folder: Path) -> list[str]:
    """The generated files that are missing or differ from what they should be."""
    files = generated().items()
    return [name for name, text in files if not _holds(folder / name, text)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the files, or with --check only compares; 1 if any is stale."""
    parser = argparse.ArgumentParser(prog="rightsizer_api.generate", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is stale")
    parser.add_argument("--folder", type=Path, default=_REPOSITORY, help="the repository's root")
    options = parser.parse_args(arguments)
    if options.check:
        names = stale(options.folder)
        sys.stderr.writelines(f"stale: {name}; run make generate\n" for name in names)
        return 1 if names else 0
    for name, text in generated().items():
        path = options.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


if __name__ == "__main__":
    sys.exit(main())
