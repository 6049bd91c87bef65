"""A configuration of torchtitan: its debug model with two layers, on made-up sequences."""

from dataclasses import dataclass

import torch
from datasets import Dataset
from torchtitan.components.optimizer import default_adamw
from torchtitan.components.tokenizer import BaseTokenizer
from torchtitan.hf_datasets import DatasetConfig
from torchtitan.hf_datasets.text_datasets import DATASETS, HuggingFaceTextDataLoader
from torchtitan.models.llama3.config_registry import llama3_debugmodel
from torchtitan.trainer import Trainer


class NumbersTokenizer(BaseTokenizer):
    @dataclass(kw_only=True, slots=True)
    class Config(BaseTokenizer.Config):
        pass

    def __init__(self, config, *, tokenizer_path):
        super().__init__()

    def encode(self, text, **kwargs):
        return [int(number) for number in text.split()]

    def decode(self, tokens, **kwargs):
        return " ".join(str(token) for token in tokens)

    def get_vocab_size(self):
        return 2048


def load_numbers(path):
    generator = torch.Generator().manual_seed(0)
    starts = torch.randint(0, 256, (2048, 1), generator=generator)
    tokens = (starts + 7 * torch.arange(65)) % 256
    lines = [" ".join(str(token) for token in row) for row in tokens.tolist()]
    return Dataset.from_dict({"text": lines}).to_iterable_dataset()


DATASETS["numbers"] = DatasetConfig(
    path="numbers",
    loader=load_numbers,
    sample_processor=lambda sample: sample["text"],
)


def tiny_llama() -> Trainer.Config:
    config = llama3_debugmodel()
    config.model_spec.model.layers = config.model_spec.model.layers[:2]
    config.tokenizer = NumbersTokenizer.Config()
    config.dataloader = HuggingFaceTextDataLoader.Config(dataset="numbers")
    config.optimizer = default_adamw(lr=5e-5)
    config.training.disable_cuda_graphs = True
    return config
