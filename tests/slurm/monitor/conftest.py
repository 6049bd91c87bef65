"""Shared values of the monitor's tests."""

import pytest

SMALL_PLAN = """\
apiVersion: rightsizer.dev/v1alpha1
kind: TrainingPlan
metadata: {name: small}
spec:
  model: {dimensions: {layers: 4, hidden: 192, heads: 4, vocab: 256}}
  workload: {tokens: 10B, sequenceLength: 128, globalBatchSequences: 64}
  deadline: {finishWithin: 100h}
  resources: {minGPUs: 1, maxGPUs: 4}
  launch: {framework: ddp, command: [train.py], checkpoint: {path: ckpt, interval: 5m}}
  elasticity: {mode: Auto, minGPUs: 1}
"""


@pytest.fixture
def small_plan() -> str:
    """The text of a small plan whose job may be resized."""
    return SMALL_PLAN
