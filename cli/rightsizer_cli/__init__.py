"""The command line: reads flags and files, asks the engine, prints. It computes no figure of its own."""
