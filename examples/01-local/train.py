"""A small GPT on real text, in any mix of data parallelism (DDP or FSDP2) and tensor parallelism.

    rightsizer run plan.yaml            # sized, elastic, resumable; the layout comes from the plan
    python train.py --tokens 100000     # or alone: one process, no rightsizer around

Tokens are bytes. Step s always trains on the same sequences, whatever the number of workers: the data's
position is the step, which the checkpoint holds. A checkpoint of one layout loads into any other
(torch.distributed.checkpoint).

Shapes: B sequences, T tokens, D hidden, H heads.
"""

import argparse
import math
import os
import sysconfig
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from rightsizer_launch import agent

CUDA = torch.cuda.is_available()


class Attention(nn.Module):
    """Causal self-attention. Under tensor parallelism each rank has its share of the heads."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.head_dim = hidden // heads
        self.query = nn.Linear(hidden, hidden, bias=False)
        self.key = nn.Linear(hidden, hidden, bias=False)
        self.value = nn.Linear(hidden, hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to the same."""
        batch, length, _ = x.shape

        def heads(projected: Tensor) -> Tensor:  # -> (B, H, T, D/H)
            return projected.view(batch, length, -1, self.head_dim).transpose(1, 2)

        q, k, v = heads(self.query(x)), heads(self.key(x)), heads(self.value(x))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(mixed.transpose(1, 2).reshape(batch, length, -1))


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, hidden: int, ffn_hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(hidden, ffn_hidden, bias=False)
        self.up = nn.Linear(hidden, ffn_hidden, bias=False)
        self.down = nn.Linear(ffn_hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to the same."""
        return self.down(functional.silu(self.gate(x)) * self.up(x))


class Block(nn.Module):
    """One layer, normalised before each half."""

    def __init__(self, hidden: int, ffn_hidden: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.RMSNorm(hidden)
        self.attention = Attention(hidden, heads)
        self.mlp_norm = nn.RMSNorm(hidden)
        self.mlp = Mlp(hidden, ffn_hidden)

    def forward(self, x: Tensor) -> Tensor:
        """(B, T, D) to the same."""
        x = x + self.attention(self.attention_norm(x))
        return x + self.mlp(self.mlp_norm(x))


class Gpt(nn.Module):
    """Embeddings, layers, a head of its own; learned positions."""

    def __init__(self, shape: dict[str, int], length: int) -> None:
        super().__init__()
        hidden, vocab = shape["hidden"], shape["vocab"]
        self.tokens = nn.Embedding(vocab, hidden)
        self.positions = nn.Embedding(length, hidden)
        self.layers = nn.ModuleList(
            Block(hidden, shape["ffn_hidden"], shape["heads"]) for _ in range(shape["layers"])
        )
        self.norm = nn.RMSNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)
        for name, weight in self.named_parameters():
            if weight.dim() == 2:
                last = name.endswith(("out.weight", "down.weight"))
                nn.init.normal_(weight, std=0.02 / math.sqrt(2 * shape["layers"]) if last else 0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) tokens to (B, T, vocab) logits."""
        x = self.tokens(tokens) + self.positions.weight[: tokens.shape[1]]
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


def parallelize(model: Gpt, layout: agent.JobLayout, mesh: DeviceMesh | None) -> nn.Module:
    """Split the layers over `tp`, then replicate (DDP) or shard (FSDP2) over `dp`."""
    if mesh is None:
        return model
    if layout.tp > 1:
        column, row = ColwiseParallel(), RowwiseParallel()
        plan = {f"attention.{name}": column for name in ("query", "key", "value")} | {"attention.out": row}
        plan |= {"mlp.gate": column, "mlp.up": column, "mlp.down": row}
        for layer in model.layers:
            parallelize_module(layer, mesh["tp"], plan)
    if layout.tp > 1 or layout.sharding in {"zero2", "zero3", "hsdp"}:
        for layer in model.layers:
            fully_shard(layer, mesh=mesh["dp"])
        return fully_shard(model, mesh=mesh["dp"])
    return DistributedDataParallel(model, process_group=mesh["dp"].get_group())


class Text:
    """The bytes of many files, cut into windows in a fixed pseudo-random order."""

    def __init__(self, path: Path, length: int, limit_bytes: int = 16 * 2**20) -> None:
        files = sorted(path.rglob("*.py")) or sorted(path.rglob("*.txt")) if path.is_dir() else [path]
        text = bytearray()
        for file in files:
            text += file.read_bytes() + b"\n"
            if len(text) >= limit_bytes:
                break
        if len(text) <= length:
            raise SystemExit(
                f"{path}: {len(text)} bytes of text are too few; give --data a file or folder with more"
            )
        self.bytes = torch.frombuffer(text[:limit_bytes], dtype=torch.uint8)
        self.length = length
        self.windows = (len(self.bytes) - 1) // length

    def sequence(self, index: int) -> Tensor:
        """T + 1 tokens; a large prime stride visits windows far apart, and epochs repeat the order."""
        start = (index * 7919) % self.windows * self.length
        return self.bytes[start : start + self.length + 1].long()


def train_step(model: nn.Module, rows: list[Tensor], *, micro_batch: int, share: float) -> float:
    """Forward and backward over this rank's rows; gradients become the mean over the global batch.

    `share` is rows of this rank times ranks over rows of the batch: 1 unless the batch does not divide
    evenly.
    """
    total = 0.0
    device = next(model.parameters()).device
    for first in range(0, len(rows), micro_batch):
        batch = torch.stack(rows[first : first + micro_batch]).to(device)
        last = first + micro_batch >= len(rows)
        if isinstance(model, DistributedDataParallel):
            model.require_backward_grad_sync = last
        elif hasattr(model, "set_requires_gradient_sync"):
            model.set_requires_gradient_sync(last)
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=CUDA):
            logits = model(batch[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), batch[:, 1:].flatten())
        weight = len(batch) / len(rows)
        (loss * weight * share).backward()
        total += loss.item() * weight
    return total


def clip_gradients(model: nn.Module, limit: float) -> None:
    """Scale the gradients to a global norm of at most `limit`, summed mesh by mesh."""
    meshes: dict[object, list[Tensor]] = {}
    for weight in model.parameters():
        meshes.setdefault(getattr(weight, "device_mesh", None), []).append(weight)
    squares = []
    for weights in meshes.values():
        norm = nn.utils.get_total_norm([weight.grad for weight in weights], foreach=False)
        squares.append((norm.full_tensor() if isinstance(norm, DTensor) else norm) ** 2)
    total = torch.stack(squares).sum().sqrt()
    for weights in meshes.values():
        nn.utils.clip_grads_with_norm_(weights, limit, total, foreach=False)


def save(model: nn.Module, optimizer: torch.optim.Optimizer, home: Path, step: int) -> Path:
    """Save on all ranks; the metadata file comes last, so half a checkpoint is never taken for one."""
    path = home / f"step-{step:08d}"
    weights, states = get_state_dict(model, optimizer)
    dcp.save(
        {"model": weights, "optimizer": states, "step": step},
        checkpoint_id=path,
        no_dist=not dist.is_initialized(),
    )
    return path


def load(model: nn.Module, optimizer: torch.optim.Optimizer, home: Path) -> int:
    """Load the newest complete checkpoint into whatever layout this is; the step, 0 when there is none."""
    complete = sorted(path.parent for path in home.glob("step-*/.metadata"))
    if not complete:
        return 0
    weights, states = get_state_dict(model, optimizer)
    state = {"model": weights, "optimizer": states, "step": 0}
    dcp.load(state, checkpoint_id=complete[-1], no_dist=not dist.is_initialized())
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
    return int(state["step"])


def arguments() -> argparse.Namespace:
    """The command line; a plan needs none of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    stdlib = sysconfig.get_paths()["stdlib"]
    parser.add_argument("--data", type=Path, default=Path(stdlib), help="text: a file or a folder")
    parser.add_argument("--tokens", type=float, default=200_000, help="tokens to train on, without a plan")
    parser.add_argument("--checkpoints", type=Path, default=Path("checkpoints"), help="where, without a plan")
    parser.add_argument("--learning-rate", type=float, default=1e-3, help="peak learning rate")
    return parser.parse_args()


def main() -> None:
    """Build the layout, resume, train until the plan's tokens are done or a stop is asked for."""
    options = arguments()
    distributed = "RANK" in os.environ
    if distributed:
        if CUDA:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if CUDA else "gloo", timeout=timedelta(seconds=120))
    layout = agent.layout()
    shape = {"layers": 4, "hidden": 192, "ffn_hidden": 512, "heads": 4, "vocab": 256} | agent.model()
    length, batch = layout.sequence_tokens or 128, layout.global_batch_sequences or 16
    device = "cuda" if CUDA else "cpu"
    mesh = (
        init_device_mesh(device, (layout.dp, layout.tp), mesh_dim_names=("dp", "tp")) if distributed else None
    )
    dp_rank = mesh["dp"].get_local_rank() if mesh is not None else 0

    torch.manual_seed(0)
    model = parallelize(Gpt(shape, length).to(device), layout, mesh)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=options.learning_rate, weight_decay=0.1, foreach=False
    )
    text = Text(options.data, length)
    home = agent.checkpoint_directory(options.checkpoints)
    step = load(model, optimizer, home)
    target = agent.target_tokens(options.tokens)
    agent.start(step=step, tokens=step * batch * length)

    while step * batch * length < target:
        rows = [text.sequence(step * batch + row) for row in range(dp_rank, batch, layout.dp)]
        progress = step * batch * length / target
        for group in optimizer.param_groups:  # warm-up over 20 steps, then a cosine to a tenth
            cosine = 0.55 + 0.45 * math.cos(math.pi * progress)
            group["lr"] = options.learning_rate * min(1.0, (step + 1) / 20) * cosine
        loss = train_step(model, rows, micro_batch=layout.micro_batch, share=len(rows) * layout.dp / batch)
        clip_gradients(model, 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step += 1
        agent.step(tokens=batch * length, loss=loss)
        if not agent.active() and step % 10 == 0:
            print(f"step {step}  loss {loss:.3f}", flush=True)
        if agent.should_checkpoint():
            agent.checkpointed(save(model, optimizer, home, step))
        if agent.should_stop():
            break
    else:
        agent.checkpointed(save(model, optimizer, home, step))
        agent.finish()
    if distributed:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
