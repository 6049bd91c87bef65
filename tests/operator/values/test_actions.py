"""Which actions are carried out at the same time."""

from rightsizer_operator.values.actions import Apply, Delete, PatchStatus, Requeue, batches

STATUS, RETRY = PatchStatus(status={}), Requeue(after_s=1.0)


def child(kind):
    return Apply(child={"kind": kind})


def test_policies_come_before_what_needs_them_and_the_job_last():
    policies = (child("NetworkPolicy"), child("NetworkPolicy"))
    needed = (child("ConfigMap"), child("Service"), child("ReplicaSet"), child("Secret"))
    launch = (STATUS, *policies, *needed, child("Job"), RETRY)
    assert list(batches(launch)) == [(STATUS,), policies, needed, (child("Job"),), (RETRY,)]


def test_carriers_and_deletions_keep_their_order():
    actions = (
        Delete(kind="ReplicaSet", name="a"),
        child("ReplicaSet"),
        child("TrainingRuntime"),
        child("TrainJob"),
    )
    assert list(batches(actions)) == [(action,) for action in actions]
