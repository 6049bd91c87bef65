"""The shipped rule files under promtool: well-formed, and doing what the tables beside this say."""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from rightsizer_telemetry.raw import families, inline
from rightsizer_telemetry.sources import SOURCES

pytestmark = pytest.mark.prometheus

HERE = Path(__file__).parent
ROOT = HERE.parents[2]


def promtool(*arguments):
    done = subprocess.run(["promtool", *map(str, arguments)], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_rule_files_are_well_formed():
    promtool("check", "rules", *(ROOT / "helm/rightsizer/monitoring").glob("*.yaml"))


@pytest.mark.parametrize("table", ["gpus", "trainings", "alerts"])
def test_rules_turn_raw_series_into_the_table_s_values(table):
    promtool("test", "rules", HERE / "rules" / f"{table}.yaml")


def test_raw_series_give_the_same_gpus_as_the_rules(tmp_path):
    """The table of the rules, from a server without rules: names of recorded families go, values stay."""
    table = yaml.safe_load((HERE / "rules/gpus.yaml").read_text())
    known = families({source: frozenset(source.signals) for source in SOURCES})
    for case in table["tests"]:
        case["promql_expr_test"] = [
            asked for asked in case["promql_expr_test"] if "gpu_power:ratio" not in asked["expr"]
        ]  # no report reads the share of TDP
        for asked in case["promql_expr_test"]:
            asked["expr"] = inline(asked["expr"], known, step="30s")
            for sample in asked["exp_samples"]:
                sample["labels"] = re.sub(r"^rightsizer:[a-z0-9_:]+", "", sample["labels"]) or "{}"
    rewritten = tmp_path / "raw.yaml"
    rewritten.write_text(yaml.safe_dump({"evaluation_interval": "30s", "tests": table["tests"]}))
    promtool("test", "rules", rewritten)
