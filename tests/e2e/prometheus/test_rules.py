"""The shipped rule files under promtool: well-formed, and doing what the tables beside this say."""

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.prometheus

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def promtool(*arguments):
    done = subprocess.run(["promtool", *map(str, arguments)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rule_files_are_well_formed():
    promtool("check", "rules", *(ROOT / "helm/rightsizer/monitoring").glob("*.yaml"))


@pytest.mark.parametrize("table", ["gpus", "trainings", "alerts"])
def test_rules_make_of_raw_series_what_the_table_says(table):
    promtool("test", "rules", HERE / "rules" / f"{table}.yaml")
