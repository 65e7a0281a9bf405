"""Searches for an order of calls that a model allows and real time permits, as Wing and Gong describe.

As in Lowe's version, the search remembers tried pairs of a set of placed calls and the resulting state. (Wing and Gong,
Testing and verifying concurrent objects, 1993; Lowe, Testing for linearizability, 2017.) Each object is searched
alone, which is enough (Herlihy and Wing, 1990). The search uses the answers, and not the log.
"""

from __future__ import annotations

from operator import attrgetter

from models import MODELS, object_of

KILLED_MAX = 3
"""The maximum number of killed calls between two others of which only the later one has seen an effect."""

STATES_MAX = 1_000_000
"""The maximum number of states of a search. More means too many calls, or too many killed ones."""


def check_blind(calls):
    """Return, for each object that no order explains, the calls at which the search got stuck."""
    objects = {}
    for call in calls:
        objects.setdefault(object_of(call), []).append(call)
    problems = []
    for name, some in sorted(objects.items()):
        stuck = Search(some, MODELS[name.split(" ")[0]]).run()
        if stuck:
            problems.append(f"{name}: no order explains {', '.join(map(repr, stuck))}")
    return problems


class Search:
    """The search over the calls of one object: ended calls in the order of their beginnings, then killed ones."""

    def __init__(self, calls, model):
        self.known = sorted((call for call in calls if call.is_known), key=attrgetter("invoked"))
        self.killed = [call for call in calls if not call.is_known and call.name != "get"]
        self.model = model
        self.bits = {call: 1 << number for number, call in enumerate(self.known + self.killed)}

    def run(self):
        """Return no calls if an order explains all of them. Otherwise return those that the best try has left."""
        seen, best, stuck = {(0, self.model.START)}, 0, []
        stack = [self.look(0, 0, self.model.START)]
        while stack:
            low, placed, moves = stack[-1]
            if low == len(self.known):
                return []
            for move in moves:
                if move not in seen:
                    assert len(seen) < STATES_MAX, "the search is too large"
                    seen.add(move)
                    stack.append(self.look(low, *move))
                    break
            else:
                if len(stack) > best:
                    best, stuck = len(stack), self.next_calls(low, placed)[0]
                stack.pop()
        return stuck

    def look(self, low, placed, state):
        """Return how many calls are placed without a gap, all that are placed, and the moves from there."""
        while low < len(self.known) and placed >> low & 1:
            low += 1
        return low, placed, self.moves(low, placed, state)

    def moves(self, low, placed, state):
        """Yield (placed calls, state) after one more call, or after killed calls and one that sees their effect.

        Killed calls without a visible effect are left out, so nothing else must be tried.
        """
        some, ends = self.next_calls(low, placed)
        plain = {call: list(self.model.step(state, call, ends)) for call in some}
        for call, states in plain.items():
            yield from ((placed | self.bits[call], after) for after in states)
        chains = [(placed, state)]
        killed = [call for call in self.killed if call.invoked <= ends and not placed & self.bits[call]]
        for _ in range(KILLED_MAX):
            chains = list(dict.fromkeys(self.extended(chains, killed, ends)))
            for made, between in chains:
                for call in some:
                    for after in self.model.step(between, call, ends):
                        if after not in plain[call]:
                            yield made | self.bits[call], after

    def extended(self, chains, killed, ends):
        """Yield chains of killed calls with one more, which changes the state."""
        for made, state in chains:
            for call in killed:
                if not made & self.bits[call]:
                    for after in self.model.step(state, call, ends):
                        if after != state:
                            yield made | self.bits[call], after

    def next_calls(self, low, placed):
        """Return the calls that may come next, and until when: they began before any other that is left had ended."""
        ends, some = float("inf"), []
        for number in range(low, len(self.known)):
            call = self.known[number]
            if call.invoked > ends:
                break
            if not placed >> number & 1:
                ends = min(ends, call.responded)
                some.append(call)
        some.sort(key=attrgetter("responded"))
        return [call for call in some if call.invoked <= ends], ends
