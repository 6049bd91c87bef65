"""Train a small Transformer with the Lightning Trainer."""

import lightning as L
import torch
from lightning.pytorch.demos import Transformer
from torch.utils.data import DataLoader, TensorDataset

L.seed_everything(0)

generator = torch.Generator().manual_seed(0)
tokens = (torch.randint(0, 256, (2048, 1), generator=generator) + 7 * torch.arange(65)) % 256
dataset = TensorDataset(tokens[:, :-1], tokens[:, 1:])


class LanguageModel(L.LightningModule):
    """Predicts the next token."""

    def __init__(self):
        super().__init__()
        self.model = Transformer(vocab_size=256, ninp=64, nhead=4, nhid=128, nlayers=2, dropout=0.0)

    def training_step(self, batch, batch_idx):
        """The loss of a batch."""
        inputs, target = batch
        output = self.model(inputs, target)
        loss = torch.nn.functional.nll_loss(output, target.view(-1))
        self.log("train_loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self):
        """The optimizer."""
        return torch.optim.Adam(self.parameters(), lr=1e-3)


if __name__ == "__main__":
    trainer = L.Trainer(max_epochs=1, accelerator="auto", devices="auto", strategy="ddp")
    trainer.fit(LanguageModel(), DataLoader(dataset, batch_size=8, shuffle=True))
    trainer.save_checkpoint("final.ckpt")
