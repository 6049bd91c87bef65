"""rightsizer: from a model, tokens and a deadline to the fewest GPUs and the layout that meet it.

    import rightsizer
    result = rightsizer.plan(model="meta-llama/Llama-3.1-8B", tokens="100B", deadline="72h", gpu="H100")

These names are stable; `docs/python.md` describes them.
"""

from rightsizer.functions import estimate_layout, plan
from rightsizer.results import Estimate, Interval, NoPlan, Plan, Refused, Step

__all__ = ["Estimate", "Interval", "NoPlan", "Plan", "Refused", "Step", "estimate_layout", "plan"]
