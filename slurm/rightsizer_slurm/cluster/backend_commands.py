"""The backend that works with every Slurm: Slurm's own commands."""

import json

from rightsizer_api.untrusted_text import one_line
from rightsizer_slurm.cluster import snapshot
from rightsizer_slurm.cluster.jobs import SlurmJob, decision_of, noted
from rightsizer_slurm.cluster.jobs_json import job_of_json
from rightsizer_slurm.cluster.slurm_cli import Slurm, SlurmError


class SlurmCommands:
    """squeue, scontrol and scancel."""

    name = "commands"

    def __init__(self, slurm: Slurm | None = None) -> None:
        self.slurm = slurm or Slurm()

    def version(self) -> tuple[int, int]:
        """The version of the commands; the controller's differs by a few releases at most."""
        output = self.slurm.run("sinfo", "--version").split()
        parts = output[-1].split(".") if output else []
        if len(parts) < 2 or not all(part.isdigit() for part in parts[:2]):
            raise SlurmError("sinfo --version", f"unexpected output {' '.join(output)!r}")
        return int(parts[0]), int(parts[1])

    def jobs(self) -> tuple[SlurmJob, ...]:
        """Every job that squeue shows, in any state."""
        return self._jobs("--states=all")

    def job(self, job_id: int) -> SlurmJob | None:
        """One job. On 22.05, whose JSON ignores the filter, it is picked from all jobs."""
        try:
            jobs = self._jobs(f"--jobs={job_id}", "--states=all")
        except SlurmError as error:
            if "Invalid job id" in error.detail:
                return None
            raise
        return next((job for job in jobs if job.job_id == job_id), None)

    def cluster(self) -> snapshot.SlurmCluster:
        """Partitions and nodes, from scontrol: the format of sinfo's JSON changed twice."""
        return snapshot.read(self.slurm)

    def requeue(self, job_id: int, *, hold: bool = False) -> None:
        """Requeue, or requeuehold."""
        self.slurm.run("scontrol", "requeuehold" if hold else "requeue", str(job_id))

    def release(self, job_id: int) -> None:
        """Release."""
        self.slurm.run("scontrol", "release", str(job_id))

    def resize(self, job_id: int, *, nodes: int, tasks: int, cpus: int) -> None:
        """Set nodes, tasks and cores in one update."""
        size = (f"NumNodes={nodes}-{nodes}", f"NumTasks={tasks}", f"NumCPUs={cpus}")
        self.slurm.run("scontrol", "update", f"JobId={job_id}", *size)

    def shrink(self, job_id: int, *, nodes: int) -> None:
        """Shrink by node count or names: newer releases refuse a count for jobs with --ntasks-per-node."""
        try:
            self.slurm.run("scontrol", "update", f"JobId={job_id}", f"NumNodes={nodes}")
        except SlurmError as error:
            job = self.job(job_id)
            if "no longer pending" not in error.detail or job is None or not job.running:
                raise
            names = self.slurm.run("scontrol", "show", "hostnames", job.node_list).split()
            keep = sorted(names, key=lambda name: name != job.batch_host)[:nodes]
            self.slurm.run("scontrol", "update", f"JobId={job_id}", f"NodeList={','.join(keep)}")

    def annotate(self, job_id: int, note: str) -> None:
        """Write the note into the AdminComment, beside the job's size and what other programs wrote there."""
        job = self.job(job_id)
        before = job.admin_comment if job else ""
        text = noted(before, " | ".join(filter(None, (decision_of(before), note))))
        self.slurm.run("scontrol", "update", f"JobId={job_id}", f"AdminComment={text}")

    def signal_script(self, job_id: int, name: str) -> None:
        """Signal the batch script only."""
        self.slurm.run("scancel", "--batch", f"--signal={name}", str(job_id))

    def notify(self, job_id: int, text: str) -> None:
        """Write to the job's output."""
        self.slurm.run("scontrol", "notify", str(job_id), text)

    def _jobs(self, *options: str) -> tuple[SlurmJob, ...]:
        return jobs_of_json(self.slurm.run("squeue", "--json", *options))


def jobs_of_json(text: str) -> tuple[SlurmJob, ...]:
    """The jobs of squeue --json. SlurmError if they cannot be parsed."""
    try:
        return tuple(job_of_json(raw) for raw in json.loads(text)["jobs"])
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise SlurmError("squeue --json", f"cannot parse the output: {one_line(str(error))}") from None
