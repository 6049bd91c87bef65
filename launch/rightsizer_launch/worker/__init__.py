"""The program inside a job: the agent, torchrun's entrypoint, the rendezvous store, metrics."""
