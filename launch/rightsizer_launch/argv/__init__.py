"""The command lines of torchrun and of the training frameworks."""
