"""The decision: the fewest GPUs, and the layout, that meet the deadline; or why there are none."""

from rightsizer.outcome import Binding, CurvePoint, NoPlan, Option, Plan, Request

__all__ = ["Binding", "CurvePoint", "NoPlan", "Option", "Plan", "Request", "plan"]


def plan(request: Request) -> Plan | NoPlan:
    """The cheapest option that meets every constraint of the request at its confidence."""
    return NoPlan(request=request, binding=Binding.FRAMEWORK, reason="no layout was searched")
