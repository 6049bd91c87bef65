"""Train a small Llama from its configuration with the Trainer."""

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

config = LlamaConfig(
    vocab_size=256,
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=4,
)
model = LlamaForCausalLM(config)

generator = torch.Generator().manual_seed(0)
starts = torch.randint(0, 256, (2048, 1), generator=generator)
tokens = (starts + 7 * torch.arange(64)) % 256
dataset = Dataset.from_dict({"input_ids": tokens.tolist(), "labels": tokens.tolist()})

training_args = TrainingArguments(
    output_dir="results",
    per_device_train_batch_size=8,
    learning_rate=1e-3,
    num_train_epochs=1,
    logging_steps=10,
)

trainer = Trainer(
    model=model,
    args=training_args,
    train_dataset=dataset,
)

trainer.train()
trainer.save_model("model")
