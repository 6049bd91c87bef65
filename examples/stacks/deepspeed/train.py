"""Train a small Transformer with DeepSpeed: deepspeed train.py --deepspeed --deepspeed_config config.json."""

import argparse

import deepspeed
import torch
from torch.nn import functional as F
from torch.utils.data import TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1, help="local rank passed from distributed launcher")
parser = deepspeed.add_config_arguments(parser)
cmd_args = parser.parse_args()

torch.manual_seed(0)


class LanguageModel(torch.nn.Module):
    """Predicts the next token."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(256, 64)
        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2)
        self.head = torch.nn.Linear(64, 256)

    def forward(self, tokens, targets):
        """The loss of the next tokens."""
        mask = torch.nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        logits = self.head(self.layers(self.embedding(tokens), mask=mask, is_causal=True))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


tokens = (torch.randint(0, 256, (2048, 1)) + 7 * torch.arange(65)) % 256
dataset = TensorDataset(tokens[:, :-1], tokens[:, 1:])
net = LanguageModel()

model_engine, optimizer, data_loader, _ = deepspeed.initialize(
    args=cmd_args,
    model=net,
    model_parameters=net.parameters(),
    optimizer=torch.optim.AdamW(net.parameters(), lr=1e-3),
    training_data=dataset,
)

for _ in range(5):
    for inputs, targets in data_loader:
        loss = model_engine(inputs.to(model_engine.device), targets.to(model_engine.device))
        model_engine.backward(loss)
        model_engine.step()
