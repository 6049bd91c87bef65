"""Fine-tune a small Llama with LoRA and the SFTTrainer."""

import torch
from datasets import Dataset
from peft import LoraConfig
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed
from trl import SFTConfig, SFTTrainer

set_seed(0)

words = {str(number): number for number in range(254)} | {"<eos>": 254, "<pad>": 255}
word_level = Tokenizer(WordLevel(words, unk_token="<pad>"))
word_level.pre_tokenizer = WhitespaceSplit()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=word_level, eos_token="<eos>", pad_token="<pad>")

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
numbers = (torch.randint(0, 254, (2048, 1), generator=generator) + 7 * torch.arange(63)) % 254
dataset = Dataset.from_dict({"text": [" ".join(map(str, row)) for row in numbers.tolist()]})

training_args = SFTConfig(
    output_dir="results",
    per_device_train_batch_size=8,
    learning_rate=5e-3,
    max_length=64,
    num_train_epochs=1,
    logging_steps=10,
)

trainer = SFTTrainer(
    model=model,
    args=training_args,
    train_dataset=dataset,
    processing_class=tokenizer,
    peft_config=LoraConfig(r=16, lora_alpha=32, target_modules="all-linear"),
)

trainer.train()
trainer.save_model("adapter")
