"""Random inputs for every parser of tenants' and users' texts: only the project's own errors may be raised.

    python -m bench.fuzz [--inputs 1000000] [--seed 16] [--only scrape]

The inputs are shared among the targets. The same seed gives the same inputs. Exit code 1 if a parser raised.
"""

import argparse
import sys
import time
import traceback
from collections import Counter
from random import Random

from bench.fuzz import kubernetes, magnitudes, slurm
from bench.fuzz.inputs import Target

from rightsizer_engine.errors import RightsizerError

TARGETS: tuple[Target, ...] = (*kubernetes.TARGETS, *slurm.TARGETS, *magnitudes.TARGETS)


def faults(target: Target, *, inputs: int, seed: int) -> Counter[str]:
    """Unexpected exceptions by type and place, each with its first input."""
    random = Random(f"{seed} {target.name}")  # noqa: S311 -- the same inputs each time
    found, first = Counter[str](), dict[str, str]()
    for _ in range(inputs):
        value = target.generate(random)
        try:
            target.parse(value)
        except RightsizerError:
            pass
        except Exception as error:  # the point: anything else is a fault
            at = traceback.extract_tb(error.__traceback__)[-1]
            key = f"{type(error).__name__} at {at.filename.rpartition('/')[2]}:{at.lineno}: {error}"[:160]
            first.setdefault(key, repr(value))
            found[key] += 1
    return Counter({f"{key}\n    {first[key][:2000]}": count for key, count in found.items()})


def main() -> int:
    """Run all targets and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1_000_000, help="for all targets together")
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--only", default="", help="targets whose name contains this")
    args = parser.parse_args()
    targets = [target for target in TARGETS if args.only in target.name]
    each, failed = -(-args.inputs // len(targets)), False
    for target in targets:
        began_s = time.monotonic()
        found = faults(target, inputs=each, seed=args.seed)
        failed |= bool(found)
        print(
            f"{target.name:28} {each:9,} inputs {found.total():6,} faults {time.monotonic() - began_s:4.0f} s"
        )
        for fault, count in found.most_common(10):
            print(f"  {count} x {fault}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
