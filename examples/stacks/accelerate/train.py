"""Train a small Transformer with a loop of its own and Accelerate."""

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

set_seed(0)


class LanguageModel(torch.nn.Module):
    """Predicts the next token."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(256, 64)
        layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.layers = torch.nn.TransformerEncoder(layer, 2)
        self.head = torch.nn.Linear(64, 256)

    def forward(self, tokens):
        """The logits of the next tokens."""
        mask = torch.nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.head(self.layers(self.embedding(tokens), mask=mask, is_causal=True))


tokens = (torch.randint(0, 256, (2048, 1)) + 7 * torch.arange(65)) % 256
dataset = TensorDataset(tokens[:, :-1], tokens[:, 1:])

accelerator = Accelerator()
device = accelerator.device

model = LanguageModel()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
training_dataloader = DataLoader(dataset, batch_size=8, shuffle=True)
scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_iters=3 * len(training_dataloader))

model, optimizer, training_dataloader, scheduler = accelerator.prepare(
    model, optimizer, training_dataloader, scheduler
)

for _ in range(3):
    model.train()
    for batch in training_dataloader:
        optimizer.zero_grad()
        inputs, targets = batch
        outputs = model(inputs)
        loss = F.cross_entropy(outputs.flatten(0, 1), targets.flatten())
        accelerator.backward(loss)
        optimizer.step()
        scheduler.step()

accelerator.wait_for_everyone()
accelerator.save_model(model, "model")
