"""What is known about the mutants of every file, over all runs: one row a file."""

from collections.abc import Collection, Mapping
from typing import Any, Final

from proof.mutants.source_mutations import Mutant

FATES: Final = ("killed", "timed out", "explained", "survived")


class Sheet:
    """Rows that add up.

    The first verdict of a run about a file takes the place of all that was known about it. A run `again` tries what
    survived before, so there each verdict takes the place of that one survivor. What no verdict touches stays; only a
    survivor that is no mutant of its file any more, because the line is gone, is forgotten.
    """

    def __init__(self, there: Mapping[str, Collection[str]], before: Mapping[str, Any], *, again: bool) -> None:
        self._there, self._again, self._before_s = there, again, float(before.get("took_s", 0))
        self._rows = {file: dict.fromkeys(FATES, 0) for file in there}
        for row in before.get("rows", ()):
            if row["file"] in there:
                self._rows[row["file"]] = {fate: row[fate] for fate in FATES}
        self._broken: dict[str, str] = {}
        for line in before.get("broken", ()):
            name, file = line.rpartition(" (line ")[0], line.partition(" ")[0]
            if name in there.get(file, ()):
                self._broken[name] = line
            elif file in there:
                self._rows[file]["survived"] -= 1
        self._begun = set[str]()

    @property
    def survivors(self) -> frozenset[str]:
        """The names of those that live."""
        return frozenset(self._broken)

    def note(self, mutant: Mutant, fate: str) -> None:
        """Take in one verdict."""
        if self._again:
            self._rows[mutant.file]["survived"] -= 1
            del self._broken[mutant.name]
        elif mutant.file not in self._begun:
            self._begun.add(mutant.file)
            self._rows[mutant.file] = dict.fromkeys(FATES, 0)
            self._broken = {name: line for name, line in self._broken.items() if name.partition(" ")[0] != mutant.file}
        self._rows[mutant.file][fate] += 1
        if fate == "survived":
            self._broken[mutant.name] = f"{mutant.name} (line {mutant.line}) fails no test"

    def counts(self) -> dict[str, int]:
        """The sums over all files."""
        rows = self.rows()

        def of(*names: str) -> int:
            return sum(row[name] for row in rows for name in names)

        return {
            "files": len(rows),
            "files tried whole": sum(row["tried"] == row["mutants"] for row in rows),
            "mutants": of("mutants"),
            "tried": of("tried"),
            "killed": of("killed", "timed out"),
            "of these by a time limit": of("timed out"),
            "explained": of("explained"),
            "survived": of("survived"),
        }

    def rows(self) -> tuple[dict[str, Any], ...]:
        """A row for every file, tried or not: how many mutants it has, and what became of those that were tried."""
        return tuple(
            {"file": file, "mutants": len(self._there[file]), "tried": sum(found.values()), **found}
            for file, found in sorted(self._rows.items())
        )

    def broken(self) -> tuple[str, ...]:
        """What fails no test, a line each."""
        return tuple(sorted(self._broken.values()))

    def before_s(self) -> float:
        """How long the earlier runs took of which something is still in here."""
        return 0.0 if self._begun == set(self._there) else self._before_s
