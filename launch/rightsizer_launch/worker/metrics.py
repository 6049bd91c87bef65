"""The in-job agent's Prometheus metrics and their names."""

from typing import Any

TOKENS = "rightsizer_train_tokens"
POSITION = "rightsizer_train_position_tokens"
_TARGET = "rightsizer_train_target_tokens"
STEP = "rightsizer_train_step"
STEP_SECONDS = "rightsizer_train_step_seconds"
TOKENS_PER_SECOND = "rightsizer_train_tokens_per_second"
LOSS = "rightsizer_train_loss"
WORKERS = "rightsizer_train_workers"
RESTARTS = "rightsizer_train_restarts"
CHECKPOINT_TIMESTAMP = "rightsizer_train_checkpoint_timestamp_seconds"
_CHECKPOINT_POSITION = "rightsizer_train_checkpoint_position_tokens"
CHECKPOINT_SECONDS = "rightsizer_train_checkpoint_seconds"
DATA_WAIT_SECONDS = "rightsizer_train_data_wait_seconds"
PHASE = "rightsizer_train_phase"

PHASES = ("startup", "training", "checkpoint", "evaluation", "recovery")
"""The phases of a training, the values of the label `phase`."""

NAMES = {
    TOKENS + "_total": "Tokens processed by this process, those of steps that are later repeated included",
    POSITION: "Tokens of the training done so far",
    _TARGET: "Tokens of the whole training",
    STEP: "Optimizer steps done so far",
    STEP_SECONDS: "Duration of the optimizer steps of this process (sum and count)",
    TOKENS_PER_SECOND: "Tokens per second of the whole job over the last steps",
    LOSS: "Training loss of the last step",
    WORKERS: "Workers in the current world",
    RESTARTS: "Times torchrun restarted the workers within this attempt",
    CHECKPOINT_TIMESTAMP: "Unix time of the last checkpoint",
    _CHECKPOINT_POSITION: "Tokens done at the last checkpoint",
    CHECKPOINT_SECONDS + "_total": "Seconds that this process spent in checkpoints",
    DATA_WAIT_SECONDS + "_total": "Seconds that this process waited for data, as far as the script times it",
    PHASE: "1 for what the training does now, 0 for the other phases",
}
"""Every metric that the agent serves, with its help text."""


class TrainMetrics:
    """The metrics in a separate registry: the training script's registry is not touched."""

    def __init__(self) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Summary  # lazy by design

        self.registry = CollectorRegistry()
        self._tokens = Counter(TOKENS, NAMES[TOKENS + "_total"], registry=self.registry)
        self._seconds = Summary(STEP_SECONDS, NAMES[STEP_SECONDS], registry=self.registry)
        self._counters = {
            name: Counter(name, NAMES[name + "_total"], registry=self.registry)
            for name in (CHECKPOINT_SECONDS, DATA_WAIT_SECONDS)
        }
        self._phase = Gauge(PHASE, NAMES[PHASE], ["phase"], registry=self.registry)
        plain = [name for name in NAMES if not name.endswith("_total") and name not in {STEP_SECONDS, PHASE}]
        self._gauges = {name: Gauge(name, NAMES[name], registry=self.registry) for name in plain}
        self.enter("startup")

    def set(self, **values: float) -> None:
        """Set gauges by the last part of their name, as in `set(loss=2.1, workers=8)`."""
        for name, value in values.items():
            self._gauges[f"rightsizer_train_{name}"].set(value)

    def spend(self, **seconds: float) -> None:
        """Add seconds to a counter, as in `spend(data_wait=0.3)`."""
        for name, value in seconds.items():
            self._counters[f"rightsizer_train_{name}_seconds"].inc(value)

    def enter(self, phase: str) -> None:
        """Set the current phase, one of PHASES."""
        for name in PHASES:
            self._phase.labels(name).set(float(name == phase))

    def observe(self, *, tokens: float, step_s: float) -> None:
        """Count one step."""
        self._tokens.inc(tokens)
        self._seconds.observe(step_s)


def serve(metrics: TrainMetrics, *, port: int, address: str = "127.0.0.1") -> Any:
    """Serve the metrics in a daemon thread; returns the server. OSError if the port is taken."""
    from prometheus_client import start_http_server  # lazy by design

    server, _thread = start_http_server(port, addr=address, registry=metrics.registry)
    return server
