"""The spec of a Lease. Pure."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from rightsizer_engine.values import immutable


@immutable
class LeaseSpec:
    """The holder of a Lease and its times, as the API has them."""

    holder: str = ""
    duration_s: int | None = None
    acquired: str | None = None
    renewed: str | None = None
    transitions: int = 0

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> "LeaseSpec":
        """Parse a Lease."""
        spec = raw.get("spec", {})
        return cls(
            holder=spec.get("holderIdentity") or "",
            duration_s=spec.get("leaseDurationSeconds"),
            acquired=spec.get("acquireTime"),
            renewed=spec.get("renewTime"),
            transitions=spec.get("leaseTransitions", 0),
        )

    def held_by(self, holder: str, now: dt.datetime, *, duration_s: int) -> "LeaseSpec":
        """Renewed by its holder, or taken over by another."""
        time = now.isoformat(timespec="microseconds").replace("+00:00", "Z")
        renewal = self.holder == holder and self.acquired is not None
        return LeaseSpec(
            holder=holder,
            duration_s=duration_s,
            acquired=self.acquired if renewal else time,
            renewed=time,
            transitions=self.transitions + (not renewal),
        )

    def document(self) -> dict[str, Any]:
        """The Lease's spec."""
        return {
            "holderIdentity": self.holder,
            "leaseDurationSeconds": self.duration_s,
            "acquireTime": self.acquired,
            "renewTime": self.renewed,
            "leaseTransitions": self.transitions,
        }
