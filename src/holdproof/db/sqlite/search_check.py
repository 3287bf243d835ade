"""Compare a full-text index with the table it is made of: `integrity_check` does not, so a search could lie unseen."""

from pathlib import Path

import apsw

from holdproof.db.sqlite.files import connect


def check_search(path: Path, index: str) -> list[str]:
    """Return what is wrong with an FTS5 index over another table of the file; holds the write lock while it compares.

    FTS5 can compare itself with its table only by a statement that counts as a write, though it changes nothing.
    """
    connection = connect(path, busy_s=10, create=False)
    try:
        connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")  # noqa: S608 (our name)
        # Only the format's version is ours: another ranking function would hide what it ranks last.
        settings = connection.execute(f"SELECT k FROM {index}_config").fetchall()  # noqa: S608 (our name)
    except apsw.CorruptError:
        return ["a search finds other words than the objects have"]
    except apsw.SQLError as error:
        return [f"the index cannot be read: {error}"]
    finally:
        connection.close()
    return [] if settings == [("version",)] else ["the index has settings that Holdproof never gives it"]
