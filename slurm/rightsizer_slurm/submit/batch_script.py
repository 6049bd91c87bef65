"""The batch script: srun and torchrun, a rendezvous that no worker holds, save and requeue in time. Pure.

The script reads its size when it starts ($SLURM_JOB_NUM_NODES), so that a requeue with another size, or a
shrink while it runs, needs no other script. It never asks for tasks per node: with that in the request a
job's size can hardly be changed. Every text of the user is quoted by shlex.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import field

from rightsizer.errors import InputError
from rightsizer.units import parse_duration_s
from rightsizer.values import immutable
from rightsizer_api import expand
from rightsizer_api.resources import ElasticityMode
from rightsizer_launch import frameworks
from rightsizer_launch.torchrun import Torchrun, environment, program, program_arguments
from rightsizer_launch.worker import progress
from rightsizer_launch.worker.restart_monitor import ENV_RESTART_WITHIN_S
from rightsizer_slurm.cluster.comment import PREFIX
from rightsizer_slurm.submit.placement import Fitted

__all__ = [
    "Place",
    "batch_options",
    "elastic",
    "fewest_nodes",
    "files",
    "interval_s",
    "most_nodes",
    "pyxis_image",
    "script",
]

_SIGNAL_SLACK_S = 120
"""Over the workers' grace: Slurm may send the signal a minute off, and processes take their time to end."""
_LAST_CALL_S = 30
"""How long a world waits for nodes that are slow to start, torch's own default.

Shorter, and a world forms without them: it starts over when they come. A job that lost nodes pays it at each
restart, since its most stays what it began with.
"""
_ELASTIC_FRAMEWORKS = ("ddp", "custom")  # the others have the number of ranks in their flags
_WORDS_OF_SIZE = ("gpus", "dp", "microBatches", "shardGroup")


@immutable
class Place:
    """Where the job runs: its run directory and working directory (absolute), the Python that has rightsizer.

    `rendezvous` is host:port of a store that someone else keeps; empty: the batch script keeps one. `options`
    are more options of sbatch as the user gave them.
    """

    run: str
    home: str
    plan: str
    python: str = "python3"
    rendezvous: str = ""
    container: bool = False
    mounts: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    settings: Mapping[str, str] = field(default_factory=dict)


def batch_options(fitted: Fitted, place: Place) -> tuple[str, ...]:
    """What sbatch is told: size, time, what to do before the end. The user's own come last and win."""
    plan, pool = fitted.plan, fitted.pool
    gres = f"gpu:{pool.gres}:{fitted.node_gpus}" if pool.gres else f"gpu:{fitted.node_gpus}"
    return (
        f"--job-name={plan.metadata.name}",
        f"--partition={pool.partition}",
        f"--nodes={fitted.nodes}",
        f"--gres={gres}",
        f"--cpus-per-task={fitted.cores}",
        f"--time={round(fitted.time_s / 60)}",
        f"--signal=B:USR1@{round(_grace_s(fitted)) + _SIGNAL_SLACK_S}",
        "--requeue",
        "--no-kill",
        "--open-mode=append",
        f"--output={_pattern(place.run)}/slurm-%j.out",
        f"--comment={PREFIX} {_word('plan', place.plan)} {_word('run', place.run)}",
        *place.options,
    )


def elastic(fitted: Fitted) -> bool:
    """Whether the number of nodes may change: nothing that the workers were told depends on it."""
    plan, layout = fitted.plan, fitted.option.layout
    words = (*plan.spec.launch.command, *plan.spec.launch.args)
    told = any("{layout." + name + "}" in word for word in words for name in _WORDS_OF_SIZE)
    return (
        plan.spec.elasticity.mode is not ElasticityMode.OFF
        and plan.spec.launch.framework in _ELASTIC_FRAMEWORKS
        and layout.dp == layout.gpus
        and layout.ep == 1
        and not layout.shard_group
        and not told
    )


def fewest_nodes(fitted: Fitted) -> int:
    """Nodes with which the training may go on."""
    if not elastic(fitted):
        return fitted.nodes
    fewest = fitted.plan.spec.elasticity.min_gpus or fitted.plan.spec.resources.min_gpus
    return min(fitted.nodes, max(1, -(-fewest // fitted.node_gpus)))


def most_nodes(fitted: Fitted) -> int:
    """Nodes that the job may grow to: as many as the partition and the plan allow, if it is elastic."""
    if not elastic(fitted):
        return fitted.nodes
    asked = fitted.plan.spec
    room = fitted.pool.room(free=False)
    most = min(asked.elasticity.max_gpus or asked.resources.max_gpus or room, room)
    return max(fitted.nodes, most // fitted.node_gpus)


def files(fitted: Fitted, place: Place) -> Mapping[str, str]:
    """What the framework wants to read from the run directory, by name."""
    return _flags(fitted, place).files


def script(fitted: Fitted, place: Place) -> str:
    """The whole batch script."""
    for text in (place.run, place.home, place.plan, place.python, *place.options):
        if re.search(r"[\x00-\x1f\x7f]", text):
            raise InputError(
                "path", value=text, remedy="has a control character: no batch script can hold it"
            )
    options = "\n".join(f"#SBATCH {_directive(option)}" for option in batch_options(fitted, place))
    exports = "\n".join(
        f"export {name}={shlex.quote(value)}" for name, value in _variables(fitted, place).items()
    )
    return _TEMPLATE.format(
        options=options,
        words=re.sub(r"\s+", " ", fitted.words),
        python=shlex.quote(place.python),
        run=shlex.quote(place.run),
        home=shlex.quote(place.home),
        fewest=fewest_nodes(fitted),
        name=shlex.quote(fitted.plan.metadata.name),
        exports=exports,
        rendezvous=_RENDEZVOUS_OURS if not place.rendezvous else _theirs(place.rendezvous),
        cores=fitted.cores,
        node_gpus=fitted.node_gpus,
        container=_container(fitted, place),
        inner_python=shlex.quote("python3" if place.container else place.python),
        arguments=shlex.join(_arguments(fitted, place)),
    )


def _arguments(fitted: Fitted, place: Place) -> Sequence[str]:
    """The training script and its arguments; a command with the layout's placeholders says it all itself."""
    launch, workload = fitted.plan.spec.launch, fitted.workload
    words = (*launch.command, *launch.args)
    own = not any("{layout." in word for word in words)
    others = {
        "plan.name": fitted.plan.metadata.name,
        "checkpoint.path": _checkpoint(fitted, place).get(progress.ENV_CHECKPOINT_PATH, ""),
        "checkpoint.intervalSteps": max(1, round(interval_s(fitted) / fitted.option.step_s)),
        "workload.sequenceLength": workload.sequence_tokens,
        "workload.globalBatchSequences": workload.global_batch_sequences,
        "workload.steps": int(workload.steps),
    }
    expanded = expand(words, fitted.option.layout, others)
    return program_arguments(program((*expanded, *(_flags(fitted, place).arguments if own else ()))))


def _variables(fitted: Fitted, place: Place) -> dict[str, str]:
    """Environment of every worker; the user's own last. What depends on the size is set by the script."""
    launch = fitted.plan.spec.launch
    run = Torchrun(
        name=fitted.plan.metadata.name,
        attempt=1,
        endpoint="",
        min_nodes=1,
        max_nodes=fitted.nodes,
        workers_per_node=fitted.node_gpus,
        last_call_s=_LAST_CALL_S,
        max_restarts=1_000_000,
        shutdown_s=int(_grace_s(fitted)),
    )
    ours = environment(run)
    for told_at_run_time in ("PET_NNODES", "PET_RDZV_ID", "PET_RDZV_ENDPOINT"):
        del ours[told_at_run_time]
    return {
        **_flags(fitted, place).environment,
        **ours,
        "PYTHONUNBUFFERED": "1",
        progress.ENV_RUN_DIRECTORY: place.run,
        progress.ENV_RESTART_LIMIT: str(launch.restarts.limit),
        ENV_RESTART_WITHIN_S: f"{parse_duration_s(launch.restarts.within):g}",
        **_checkpoint(fitted, place),
        **{variable.name: variable.value for variable in launch.env if variable.value is not None},
        **place.settings,
    }


def _flags(fitted: Fitted, place: Place) -> frameworks.Flags:
    return frameworks.flags(
        fitted.plan.spec.launch.framework,
        fitted.option.layout,
        fitted.workload,
        architecture=fitted.answer.request.architecture,
        directory=place.run,
    )


def _checkpoint(fitted: Fitted, place: Place) -> dict[str, str]:
    asked = fitted.plan.spec.launch.checkpoint
    if asked is None:
        return {}
    path = asked.path if asked.path.startswith("/") else f"{place.run}/{asked.path}"
    return {
        progress.ENV_CHECKPOINT_PATH: path,
        progress.ENV_CHECKPOINT_INTERVAL_S: f"{interval_s(fitted):g}",
    }


def interval_s(fitted: Fitted) -> float:
    """Seconds between checkpoints."""
    asked = fitted.plan.spec.launch.checkpoint
    if asked is None or asked.interval == "auto":
        return max(10.0, float(round(fitted.option.checkpoint_interval_s)))
    return parse_duration_s(asked.interval)


def _grace_s(fitted: Fitted) -> float:
    asked = fitted.plan.spec.launch.checkpoint
    return parse_duration_s(asked.grace) if asked else 30.0


def _container(fitted: Fitted, place: Place) -> str:
    """Pyxis' options for srun; empty without an image."""
    if not place.container:
        return ""
    mounts = ",".join(f"{path}:{path}" for path in dict.fromkeys((place.run, place.home, *place.mounts)))
    image = pyxis_image(fitted.plan.spec.launch.image or "")
    words = (
        f"--container-image={image}",
        f"--container-mounts={mounts}",
        f"--container-workdir={place.home}",
    )
    return "".join(f" {shlex.quote(word)}" for word in words)


def pyxis_image(image: str) -> str:
    """An image as Pyxis writes it: a registry is set off by #, not by a slash; a path stays."""
    head, slash, rest = image.partition("/")
    if image.startswith((".", "/")) or "#" in image or "://" in image or not slash:
        return image
    return f"{head}#{rest}" if "." in head or ":" in head or head == "localhost" else image


def _pattern(path: str) -> str:
    """A path in a file name pattern of Slurm: a percent sign is written twice."""
    return path.replace("%", "%%")


def _directive(option: str) -> str:
    """One option on an #SBATCH line, quoted as sbatch reads it."""
    return option if re.fullmatch(r"[A-Za-z0-9_@%+=:,./-]+", option) else shlex.quote(option)


def _word(key: str, path: str) -> str:
    """key=path as a comment has it (`rightsizer_slurm.cluster.comment`)."""
    if not re.fullmatch(r"[A-Za-z0-9 ._=:,/+@%~-]+", path):
        remedy = (
            "has a character that no comment of Slurm may hold; letters, digits, blanks and ._=:,/+@%~- may"
        )
        raise InputError(key, value=path, remedy=remedy)
    return f'{key}="{path}"' if " " in path else f"{key}={path}"


def _theirs(endpoint: str) -> str:
    return f"export PET_RDZV_ENDPOINT={shlex.quote(endpoint)}\n"


_RENDEZVOUS_OURS = """\
# The rendezvous store lives here, beside the workers: none of them is missed when it goes. Slurm never takes
# the batch host out of a job that shrinks. It ends with this script, however that ends.
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(address_of "$head")
port=$("$python" -c 'from rightsizer_launch.worker.rendezvous import free_port; print(free_port())') || exit 1
while kill -0 $$ 2> /dev/null; do
  "$python" -m rightsizer_launch.worker.rendezvous --host "$address" --port "$port" --until $$; sleep 1
done &
store=$!
export PET_RDZV_ENDPOINT="$address:$port"
"""

_TEMPLATE = """\
#!/bin/bash
{options}
# Written by rightsizer: {words}
set -u
python={python}
run={run}
mkdir -p "$run" && cd {home} || exit 1
if [ -e "$run/done.json" ]; then echo "rightsizer: the training is complete already"; exit 0; fi

{exports}
restart=${{SLURM_RESTART_COUNT:-0}}
# Notes each start's size. A size that makes no step is given up for the one that trained, by another requeue.
goes_back() {{
  "$python" -m rightsizer_slurm.monitor.rollback "$@" --run "$run" --job "$SLURM_JOB_ID" \
    --restart "$restart" --nodes "$SLURM_JOB_NUM_NODES" --node-gpus {node_gpus} \
    --cores "${{SLURM_CPUS_PER_TASK:-{cores}}}"
}}
if goes_back start; then sleep 300; exit 1; fi
fewest={fewest}
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
# USR1: the time limit is near. USR2: rightsizer changes the size. Both save first: the workers do so on
# SIGTERM, which goes to them by scancel, for srun takes it as an order to kill. TERM: cancelled.
after=
stop() {{
  after=$1
  until scancel --signal=TERM "$SLURM_JOB_ID" || ! kill -0 "$step" 2> /dev/null; do sleep 2; done
}}
trap 'stop requeue' USR1
trap 'stop requeuehold' USR2
trap 'after=cancelled' TERM

echo "rightsizer: job $SLURM_JOB_ID, start $restart, $SLURM_JOB_NUM_NODES nodes: $SLURM_JOB_NODELIST"
srun --no-kill --kill-on-bad-exit=0 --nodes="$SLURM_JOB_NUM_NODES" --ntasks="$SLURM_JOB_NUM_NODES" \\
  --ntasks-per-node=1 --cpus-per-task="${{SLURM_CPUS_PER_TASK:-{cores}}}"{container} \\
  bash -c 'for each in $RIGHTSIZER_ADDRESSES; do
      [ "${{each%%=*}}" = "$SLURMD_NODENAME" ] && export PET_LOCAL_ADDR="${{each#*=}}"; done
    exec "$@"' bash {inner_python} -m rightsizer_launch.worker.entrypoint {arguments} &
step=$!
wait "$step"; code=$?
while kill -0 "$step" 2> /dev/null; do wait "$step"; code=$?; done # a signal ends a wait, not the step
[ -n "$store" ] && kill "$store" 2> /dev/null

# A more urgent job gets the nodes: Slurm has told the workers itself, and gives the script time to end.
[ -z "$after" ] && scontrol show job "$SLURM_JOB_ID" | grep -q ' PreemptTime=[0-9]' && after=requeue
if [ -e "$run/done.json" ]; then code=0 # after a node was let go srun tells of its end, not of the training's
elif [ "$after" = requeue ] || [ "$after" = requeuehold ]; then
  echo "rightsizer: saved; $after"
  scontrol "$after" "$SLURM_JOB_ID" && sleep 300
elif [ -z "$after" ] && goes_back failed --code "$code"; then sleep 300
fi
echo "rightsizer: end, exit code $code"
exit "$code"
"""
