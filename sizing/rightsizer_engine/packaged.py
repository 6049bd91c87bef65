"""The package's own data files, as text.

`importlib.resources` would first import pathlib, tempfile and zipfile: a twentieth of a cold start.
"""

import pkgutil


def text(name: str) -> str:
    """The file of that name in `rightsizer_engine/data`."""
    content = pkgutil.get_data("rightsizer_engine", f"data/{name}")
    assert content is not None  # every loader of ours has data
    return content.decode("utf-8")
