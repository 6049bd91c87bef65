"""`import rightsizer`: the functions and values that Python programs use; `docs/python.md` promises them."""

__all__: list[str] = []
