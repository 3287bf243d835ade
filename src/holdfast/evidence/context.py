"""What operations need beside their transaction: where things lie, and who signs."""

from dataclasses import dataclass

from holdfast.config import Paths, Settings
from holdfast.db import Database
from holdfast.evidence.heads import HighWater
from holdfast.evidence.keyfiles import KeyFolder
from holdfast.evidence.log import Log


@dataclass(frozen=True, slots=True)
class Context:
    """One open store, as seen by work that spans transactions; `None` where a store in memory has no such place."""

    paths: Paths
    settings: Settings
    database: Database
    keys: KeyFolder | None
    log: Log
    marks: HighWater | None
