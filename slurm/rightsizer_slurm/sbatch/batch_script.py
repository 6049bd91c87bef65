"""The batch script: srun and torchrun, a rendezvous that no worker hosts, save and requeue in time. Pure.

The script reads its size when it starts ($SLURM_JOB_NUM_NODES), so one script serves every size: after a
requeue and after a live shrink. It never requests tasks per node, because Slurm can hardly resize such a job.
shlex quotes all user text.
"""

import re
import shlex

from rightsizer_api.untrusted_text import one_line
from rightsizer_engine.errors import InputError
from rightsizer_engine.values import immutable
from rightsizer_launch.argv.torchrun import Torchrun, environment, program_arguments
from rightsizer_launch.worker.progress import ENV_FIRST_CHECKPOINT_S
from rightsizer_launch.worker_spec import Directories, LaunchSize, WorkerSpec, grace_s, worker_spec
from rightsizer_slurm.cluster.comment import PREFIX
from rightsizer_slurm.sbatch.containers import Container, Runtime, checked_mount
from rightsizer_slurm.submit.placement import Placement

_SIGNAL_SLACK_S = 120
"""Added to the workers' grace: Slurm may send the signal a minute late, and processes need time to end."""
_LAST_CALL_S = 30
"""How long the rendezvous waits for slow nodes: torch's default.

A shorter wait forms a world without them, which restarts when they join. A job that lost nodes waits this
long at each restart, because its maximum world size never changes.
"""


@immutable
class BatchSettings:
    """The place of the job: its run directory, its working directory and its plan, all absolute paths.

    `python` is the interpreter that has rightsizer. `rendezvous` is host:port of an external store; if it is
    empty, the batch script starts one. The job copies its records to a folder in `runs`.
    `options` are the user's own sbatch options.
    """

    run: str
    home: str
    plan: str
    python: str = "python3"
    rendezvous: str = ""
    container: Runtime | None = None
    mounts: tuple[str, ...] = ()
    runs: str = ""
    options: tuple[str, ...] = ()


def worker_of(placement: Placement, settings: BatchSettings) -> WorkerSpec:
    """The job's worker specification."""
    directories = Directories(run=settings.run, files=settings.run, checkpoints=settings.run)
    return worker_spec(
        placement.plan,
        LaunchSize.of(placement.option),
        directories,
        room_gpus=placement.pool.room(free=False),
    )


def elastic_nodes(placement: Placement, worker: WorkerSpec) -> tuple[int, int]:
    """The fewest and most nodes that the training can run on; the reserve is the most for an opening size."""
    fewest, most = worker.elastic.nodes(placement.node_gpus)
    staging = placement.sized.staging
    if staging is not None:
        most = min(most, -(-staging.reserve_gpus // placement.node_gpus))
    return min(fewest, placement.nodes), max(most, placement.nodes)


def batch_options(placement: Placement, settings: BatchSettings) -> tuple[str, ...]:
    """The sbatch options: size, time, the signal before the end. The user's own come last."""
    return (
        f"--job-name={placement.plan.metadata.name}",
        f"--partition={placement.pool.partition}",
        f"--nodes={placement.nodes}",
        f"--gres={placement.gres}",
        f"--cpus-per-task={placement.cores}",
        f"--time={round(placement.time_s / 60)}",
        f"--signal=B:USR1@{round(grace_s(placement.plan)) + _SIGNAL_SLACK_S}",
        "--requeue",
        "--no-kill",
        "--open-mode=append",
        f"--output={_pattern(settings.run)}/slurm-%j.out",
        f"--comment={PREFIX} {_comment_entry('plan', settings.plan)} {_comment_entry('run', settings.run)}",
        *settings.options,
    )


def script(placement: Placement, worker: WorkerSpec, settings: BatchSettings) -> str:
    """The whole batch script. `worker` is `worker_of` these two."""
    _check_text(settings)
    options = "\n".join(f"#SBATCH {_directive(option)}" for option in batch_options(placement, settings))
    exports = "\n".join(
        f"export {name}={shlex.quote(value)}" for name, value in _variables(placement, worker).items()
    )
    container = _container(placement, settings)
    prefix = container.prefix(placement.option.cluster.gpu) if container else ()
    return _TEMPLATE.format(
        options=options,
        summary=re.sub(r"\s+", " ", placement.summary),
        sized=shlex.quote(f"rightsizer: sized: {decision(placement)}"),
        python=shlex.quote(settings.python),
        run=shlex.quote(settings.run),
        home=shlex.quote(settings.home),
        folders="".join(f" {shlex.quote(folder)}" for folder in settings.mounts),
        fewest=elastic_nodes(placement, worker)[0],
        name=shlex.quote(placement.plan.metadata.name),
        exports=exports,
        stop_signal=int(container.stop_signal) if container else "TERM",
        at_limit="cancelled" if placement.plan.spec.active_deadline else "requeue",
        rendezvous=_external_store(settings.rendezvous) if settings.rendezvous else _OWN_STORE,
        publish=_PUBLISH.format(runs=shlex.quote(settings.runs)) if settings.runs else "",
        unpublish='rm -rf "$published"\n' if settings.runs else "",
        cores=placement.cores,
        node_gpus=placement.node_gpus,
        container="".join(f" {shlex.quote(o)}" for o in (container.srun_options() if container else ())),
        inner_python=shlex.join((*prefix, "python3" if container else settings.python)),
        arguments=shlex.join(program_arguments(worker.program)),
    )


def _check_text(settings: BatchSettings) -> None:
    """InputError if a path or an option has a control character."""
    paths = (settings.run, settings.home, settings.plan, settings.python, settings.runs)
    for text in (*paths, *settings.options):
        if re.search(r"[\x00-\x1f\x7f]", text):
            remedy = "has a control character, which a batch script cannot hold"
            raise InputError("path", value=text, remedy=remedy)


def decision(placement: Placement) -> str:
    """The size, its layout and price, and the constraint that prevents a smaller one."""
    return one_line(f"{placement.summary}; not smaller because of: {placement.sized.binding}", 600)


def _variables(placement: Placement, worker: WorkerSpec) -> dict[str, str]:
    """Environment of every worker, the user's last; the script sets those that depend on the size.

    A job that opened at its likely size saves before the first look: only a job that has saved is requeued.
    """
    run = Torchrun(
        name=placement.plan.metadata.name,
        attempt=1,
        endpoint="",
        min_nodes=1,
        max_nodes=placement.nodes,
        workers_per_node=placement.node_gpus,
        last_call_s=_LAST_CALL_S,
        shutdown_s=int(worker.grace_s),
    )
    torchrun = environment(run)
    for set_by_script in ("PET_NNODES", "PET_RDZV_ID", "PET_RDZV_ENDPOINT"):
        del torchrun[set_by_script]
    staging = placement.sized.staging
    saves_early = {ENV_FIRST_CHECKPOINT_S: f"{staging.look_s / 2:g}"} if staging else {}
    return {**torchrun, **saves_early, **worker.environment}


def _container(placement: Placement, settings: BatchSettings) -> Container | None:
    """The container of the plan's image; None if it names none."""
    if settings.container is None:
        return None
    return Container(
        runtime=settings.container,
        image=placement.plan.spec.launch.image or "",
        mounts=tuple(map(checked_mount, (settings.run, settings.home, *settings.mounts))),
        directory=settings.home,
    )


def _pattern(path: str) -> str:
    """A path in a Slurm file name pattern, where %% means a percent sign."""
    return path.replace("%", "%%")


def _directive(option: str) -> str:
    """One option of an #SBATCH line, quoted the way sbatch reads it."""
    return option if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", option) else shlex.quote(option)


def _comment_entry(key: str, path: str) -> str:
    """key=path as `rightsizer_slurm.cluster.comment` parses it."""
    if not re.fullmatch(r"[A-Za-z0-9 ._=:,/+@%~-]+", path):
        remedy = (
            "has a character that a Slurm comment cannot hold; use letters, digits, blanks and ._=:,/+@%~-"
        )
        raise InputError(key, value=path, remedy=remedy)
    return f'{key}="{path}"' if " " in path else f"{key}={path}"


def _external_store(endpoint: str) -> str:
    return f"export PET_RDZV_ENDPOINT={shlex.quote(endpoint)}\n"


_OWN_STORE = """\
# The rendezvous store runs here, not in a worker, so any worker can leave. Slurm never removes the batch host
# from a job that shrinks. The store ends with this script.
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(address_of "$head")
port=$("$python" -c 'from rightsizer_launch.worker.rendezvous import free_port; print(free_port())') || exit 1
while kill -0 $$ 2> /dev/null; do
  "$python" -m rightsizer_launch.worker.rendezvous --host "$address" --port "$port" --until $$; sleep 1
done &
store=$!
export PET_RDZV_ENDPOINT="$address:$port"
"""

_PUBLISH = """\
# Homes are private: the monitor reads copies, which only this user and the daemon can open
published={runs}/"$SLURM_JOB_ID"
"$python" -m rightsizer_slurm.monitor.publish --run "$run" --to "$published" --until $$ &
"""

_TEMPLATE = """\
#!/bin/bash
{options}
# Written by rightsizer: {summary}
set -u
python={python}
run={run}
mkdir -p "$run"{folders} && cd {home} || exit 1
if [ -e "$run/done.json" ]; then echo "rightsizer: the training is complete already"; exit 0; fi

{exports}
# Workers sign their rendezvous entries, because anybody on the network can reach the store
export RIGHTSIZER_RENDEZVOUS_KEY_FILE="$run/rendezvous.key"
(umask 077; rm -f "$run/rendezvous.key" && head -c 32 /dev/urandom > "$run/rendezvous.key") || exit 1
restart=${{SLURM_RESTART_COUNT:-0}}
# Records the size of each start. If a size trains no step, the job is requeued at the size that trained; if
# its owner has requested another size, at that one.
at_another_size() {{
  "$python" -m rightsizer_slurm.monitor.rollback "$@" --run "$run" --job "$SLURM_JOB_ID" \
    --restart "$restart" --nodes "$SLURM_JOB_NUM_NODES" --node-gpus {node_gpus} \
    --cores "${{SLURM_CPUS_PER_TASK:-{cores}}}"
}}
if at_another_size start; then sleep 300; exit 1; fi
{publish}fewest={fewest}
[ "$fewest" -gt "$SLURM_JOB_NUM_NODES" ] && fewest=$SLURM_JOB_NUM_NODES
export PET_NNODES="$fewest:$SLURM_JOB_NUM_NODES"
export PET_RDZV_ID={name}"-$SLURM_JOB_ID-$restart"
export RIGHTSIZER_ATTEMPT=$((restart + 1))

address_of() {{ printf '%s\\n' $RIGHTSIZER_ADDRESSES | sed -n "s/^$1=//p"; }}
RIGHTSIZER_ADDRESSES=$(scontrol show node --oneliner "$SLURM_JOB_NODELIST" |
  sed -n 's/^NodeName=\\([^ ]*\\) .* NodeAddr=\\([^ ]*\\) .*/\\1=\\2/p' | tr '\\n' ' ')
export RIGHTSIZER_ADDRESSES
store=
{rendezvous}
# USR1: the time limit is near. USR2: rightsizer changes the size. TERM: cancelled. Before a requeue the
# workers save, on SIGTERM. scancel sends it, because srun would kill them.
after=
stop() {{
  after=$1
  until scancel --signal={stop_signal} "$SLURM_JOB_ID" || ! kill -0 "$step" 2> /dev/null; do sleep 2; done
}}
trap 'stop {at_limit}' USR1
trap 'stop requeuehold' USR2
trap 'after=cancelled' TERM

echo "rightsizer: job $SLURM_JOB_ID, start $restart, $SLURM_JOB_NUM_NODES nodes: $SLURM_JOB_NODELIST"
echo {sized}
srun --no-kill --kill-on-bad-exit=0 --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" \\
  --ntasks-per-node=1 --cpus-per-task="${{SLURM_CPUS_PER_TASK:-{cores}}}"{container} \\
  bash -c 'for entry in $RIGHTSIZER_ADDRESSES; do
      [ "${{entry%%=*}}" = "$SLURMD_NODENAME" ] && export PET_LOCAL_ADDR="${{entry#*=}}"; done
    exec "$@"' bash {inner_python} -m rightsizer_launch.worker.entrypoint {arguments} &
step=$!
wait "$step"; code=$?
while kill -0 "$step" 2> /dev/null; do wait "$step"; code=$?; done # a signal interrupts only the wait
[ -n "$store" ] && kill "$store" 2> /dev/null

# Preempted by another job: Slurm has signalled the workers, and gives the script time to end.
[ -z "$after" ] && scontrol show job "$SLURM_JOB_ID" | grep -q ' PreemptTime=[0-9]' && after=requeue
if [ -e "$run/done.json" ]; then code=0 # after a shrink srun reports the lost node, not the training
elif [ "$after" = requeuehold ] && at_another_size resize; then sleep 300
elif [ "$after" = requeue ] || [ "$after" = requeuehold ]; then
  echo "rightsizer: saved; $after"
  scontrol "$after" "$SLURM_JOB_ID" && sleep 300
elif [ -z "$after" ] && at_another_size failed --code "$code"; then sleep 300
fi
echo "rightsizer: end, exit code $code"
{unpublish}exit "$code"
"""
