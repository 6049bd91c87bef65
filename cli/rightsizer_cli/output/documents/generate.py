"""`python -m rightsizer_cli.output.documents.generate [--check]`: writes docs/schemas."""

import json
import sys
from collections.abc import Mapping

from rightsizer_api.schema.generate import main
from rightsizer_cli.output.documents.schemas import DOCUMENTS, schema


def files() -> Mapping[str, str]:
    """Every schema: its path in the repository and its text."""
    return {f"docs/schemas/{name}.json": json.dumps(schema(name), indent=2) + "\n" for name in DOCUMENTS}


if __name__ == "__main__":
    sys.exit(main(files=files()))
