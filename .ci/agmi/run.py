"""Runs the nine attacks at rest of agmi on a statelog store. Fails unless the results are those of `store/KEYS.md`."""

from __future__ import annotations

import sys

from adapter import StoreAdapter
from agmi.attacks.at_rest import AT_REST_ATTACKS_WITH_SNAPSHOT as ATTACKS

WAYS = {
    "bare": {"has_key": False, "has_anchor": False, "verifies": True},
    "anchor": {"has_key": False, "has_anchor": True, "verifies": True},
    "key": {"has_key": True, "has_anchor": False, "verifies": True},
    "key and anchor": {"has_key": True, "has_anchor": True, "verifies": True},
    "key and anchor, read": {"has_key": True, "has_anchor": True, "verifies": False},
}
NOT_FOUND = {
    "bare": {attack.name for attack in ATTACKS},
    "anchor": {"forge"},
    "key": {"truncate", "snapshot_rollback"},
    "key and anchor": set(),
    "key and anchor, read": set(),
}


def main() -> int:
    failed = 0
    print(f"{'attack':<18}" + "".join(f"{way:<22}" for way in WAYS))
    for attack in ATTACKS:
        row = []
        for way, options in WAYS.items():
            result = attack().run(StoreAdapter(**options))
            row.append("found" if result.status == "safe" else "not found" if result.status == "VULNERABLE" else "?")
            expected = "VULNERABLE" if attack.name in NOT_FOUND[way] else "safe"
            if result.status != expected:
                failed += 1
                print(f"{attack.name}, {way}: {result.status}, not {expected}: {result}", file=sys.stderr)
            elif "-v" in sys.argv:
                print(f"{attack.name}, {way}: {result.detail}")
        print(f"{attack.name:<18}" + "".join(f"{each:<22}" for each in row))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
