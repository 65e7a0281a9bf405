"""What retention keeps of a thread of a model, by the rules of DESIGN.md alone: each version is asked, in any order."""

from __future__ import annotations

NEEDS, SERVES = "statelog:needs", "statelog:serves"


class Kept:
    """The versions that are kept, as (branch, version).

    Args:
        data: a thread of `StoreModel.threads`.
        there: its existing versions, by (branch, version), in the order of their commits.
        keep_last: the number of the last versions of each branch.
        keep_tags: whether a tag keeps its version.
        pinned: further versions to keep.
        only: the versions that may be removed. The default is all.
    """

    def __init__(self, data, there, *, keep_last=None, keep_tags=True, pinned=(), only=None):
        self._data = data
        self._there = there
        self._keep_last = keep_last or 1
        self._only = only
        self.versions = {place(each) for each in pinned}
        if keep_tags:
            self.versions |= {place(each) for each in data.tags.values() if self.is_there(each)}
        waiting = self._servants()
        self._going = set(waiting)
        self._add(data.branches)
        while met := [name for name, served in waiting.items() if place(served) in self.versions]:
            for name in met:
                del waiting[name]
            self._going = set(waiting)
            self._add(met)

    def is_there(self, version):
        return self._there.get(place(version)) is version

    def _servants(self):
        """Return branches that go with a version, and that version (V3)."""
        heads = {version.branch: version for version in self._there.values()}
        *_earlier, latest = self._there.values()
        left = {branch.parent for branch in self._data.branches.values()}
        held = left | {branch for branch, _version in self.versions}
        found = {}
        for name, head in heads.items():
            served = self._data.ids.get(head.metadata.get(SERVES))
            if name not in held and head is not latest and served is not None and self.is_there(served):
                found[name] = served
        return found

    def _add(self, names):
        for name in names:
            if name in self._going:
                continue
            branch = self._data.branches[name]
            self._keep(self._data.version(name, branch.base_version))
            for version in range(branch.head_version - self._keep_last + 1, branch.head_version + 1):
                self._keep(self._data.version(name, version))
        if self._only is not None:
            self.versions |= {at for at in self._there if at not in self._only and at[0] not in self._going}
        for at in list(self.versions):
            self._add_needed(self._there[at])

    def _keep(self, version):
        if version is not None and self.is_there(version):
            self.versions.add(place(version))

    def _add_needed(self, version):
        missing = set(version.metadata.get(NEEDS, ()))
        while missing and version.parent is not None and self.is_there(version.parent):
            version = version.parent
            self.versions.add(place(version))
            missing &= set(version.metadata.get(NEEDS, ()))


def place(version):
    """Return (branch, version) of a checkpoint."""
    return version.branch, version.version
