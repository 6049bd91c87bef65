"""`kubectl rightsizer probe` on the real cluster: created, measured by the operator, deleted."""

import json

import pytest
import yaml

pytestmark = [pytest.mark.kubernetes, pytest.mark.slow, pytest.mark.nightly]


def test_a_probe_measures_a_manifest_and_leaves_no_plan(cluster, plan, rightsizer, tmp_path, monkeypatch):
    records, file = tmp_path / "calibration.json", tmp_path / "plan.yaml"
    monkeypatch.setenv("RIGHTSIZER_CALIBRATION", str(records))
    run = plan()
    cluster.apply(yaml.safe_dump(run.claim), run.namespace)
    run.document["metadata"]["namespace"] = run.namespace
    file.write_text(yaml.safe_dump(run.document))
    said = rightsizer(run, "probe", "--file", str(file), "--time", "4m")
    assert "created TrainingPlan " in said
    assert "plan: 80 %:" in said
    (found,) = json.loads(records.read_text())["observations"]
    assert found["measured"]["steps"] > 0
    assert found["measured"]["stepSeconds"] > 0.2, "the pause in each step of two workers"
    assert found["measured"]["startSeconds"] > 0
    cluster.wait(
        "no plan",
        lambda: not cluster.api.get("trainingplans", namespace=run.namespace)["items"],
        within_s=120,
    )
