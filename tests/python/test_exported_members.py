"""The face exports what docs/python.md promises, and imports little for it."""

import inspect
import json
import subprocess
import sys

import rightsizer

BASE = {
    "numpy",
    "pydantic",
    "pydantic_core",
    "typing_extensions",
    "typing_inspection",
    "annotated_types",
    "yaml",
}
"""The base dependencies that a plan needs, with what pydantic brings."""


def test_all_lists_exactly_the_public_names():
    public = {
        name
        for name, value in vars(rightsizer).items()
        if not name.startswith("_") and not inspect.ismodule(value)
    }
    assert sorted(public) == rightsizer.__all__


def test_a_program_imports_only_what_a_plan_needs():
    """No command line, table, client or plot: `import rightsizer` stays quick and works without extras."""
    program = (
        "import json, sys, rightsizer\n"
        "rightsizer.plan(model='gpt2', tokens='1B', gpu='H100', calibrate=False)\n"
        "rightsizer.estimate_layout(model='gpt2', gpu='H100', calibrate=False)\n"
        "print(json.dumps([name for name, m in sys.modules.items() if getattr(m, '__file__', None)]))"
    )
    done = subprocess.run([sys.executable, "-I", "-c", program], check=True, capture_output=True, text=True)
    loaded = {name.partition(".")[0] for name in json.loads(done.stdout)}
    foreign = {name for name in loaded - sys.stdlib_module_names if not name.startswith(("rightsizer", "_"))}
    assert foreign <= BASE
