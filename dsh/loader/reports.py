"""What the log says of rows: what is odd, what failed and what waits, each once and by one speaker."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dsh.cordis import Fiber

from .entries import Entry
from .failures import failures_of, waiting
from .problems import Problem

if TYPE_CHECKING:
    from .tree import Loader


class Reports:
    """The speaker of a loader. A failure that whoever edits the row raises as an error is not told here again."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._said: set[str] = set()
        self.judged: set[Entry] = set()
        """Rows whose failures whoever is editing them reports."""
        loader.ctx.runtime.is_judged = self._is_on_trial

    def warn(self, warnings: Iterable[Problem]) -> None:
        """Log oddities, each text once."""
        for warning in warnings:
            text = str(warning)
            if text not in self._said:
                self._said.add(text)
                self._loader.ctx.logger.warning("%s", text)

    def tell_failed(self, entry: Entry) -> None:
        """Log why a row failed, unless somebody else reports it."""
        if not self._is_judged(entry):
            for problem in failures_of(entry):
                self._loader.ctx.logger.error("%s", problem)

    def waiting(self, *, roots: bool = False) -> dict[Entry, Problem]:
        """The rows that wait for services; with `roots` without those that only wait for others that wait."""
        return waiting(self._loader.entries(), roots=roots, offers=self._loader.ctx.get("pluginOffers"))

    def tell_waiting(self, before: Mapping[Entry, Problem]) -> None:
        """Log which rows wait for services since an edit: nothing failed, but they do not run."""
        found = self.waiting(roots=True)
        new = [problem for entry, problem in found.items() if entry.row.mark and problem != before.get(entry)]
        for problem in dict.fromkeys(new):  # rows that wait for each other share one
            self._loader.ctx.logger.warning("%s", problem)

    def _is_on_trial(self, fiber: Fiber) -> bool:
        """Whether a fiber runs a row whose failure somebody else reports."""
        entry = self._loader.entry_of(fiber)
        return entry is not None and entry.fiber is fiber and self._is_judged(entry)

    def _is_judged(self, entry: Entry | None) -> bool:
        """Whether somebody else reports what becomes of a row: the start, an edit of it or of an include around it."""
        audited = self._loader.ctx.get("bootAudited")
        if audited is not None and not audited.is_set():
            return True
        while entry is not None and entry not in self.judged and entry.tree.audited:
            entry = entry.tree.owner
        return entry is not None
