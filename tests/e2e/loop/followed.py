"""Waits of the closed loop's tests on Kubernetes, and the changes made to a plan."""


def resized(run):
    """Every change of its size: from, to, why."""
    return [(row["fromGPUs"], row["toGPUs"], row["cause"]) for row in run.status.get("resizes", ())]


def wait(run, what, condition, within_s=180):
    """Wait for a condition of this plan."""
    run.cluster.wait(f"{run.name}: {what}", condition, within_s=within_s)
