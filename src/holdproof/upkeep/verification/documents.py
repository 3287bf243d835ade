"""Check a file that somebody sent, whichever kind it is: a bundle, a person's file, the certificate of an erasure."""

from collections.abc import Callable, Collection

from holdproof.crypto.keys import PublicKey
from holdproof.errors import InvalidInputError
from holdproof.model.verify import BundleReport, BundleStory
from holdproof.upkeep.verification import certificate_check, offline, person_check
from holdproof.upkeep.verification.story import tell


def check(data: bytes, *, root: PublicKey | None = None, attested: Collection[str] = ()) -> BundleReport:
    """Check a document without store or network; `attested` is about bundles only (offline.check)."""
    other = _other_check(data)
    if other is None:
        return offline.check(data, root=root, attested=attested)
    refuse_attested(attested)
    return other(data, root=root)


def examine(data: bytes, *, root: PublicKey | None = None) -> tuple[BundleReport, BundleStory | None]:
    """Check a document, and tell what its proven records say; None of a document that is no sound bundle."""
    other = _other_check(data)
    if other is not None:
        return other(data, root=root), None
    report, records = offline.examine(data, root=root)
    return report, tell(report.kind, records) if records else None


def refuse_attested(attested: Collection[str] | None) -> None:
    """Raise InvalidInputError where a time or an anchor is asked of what is no bundle."""
    if attested:
        raise InvalidInputError("--attested is about a bundle: name the file of one", field="attested")


def _other_check(data: bytes) -> Callable[..., BundleReport] | None:
    """Return what checks a document that is no bundle."""
    if certificate_check.is_certificate(data):
        return certificate_check.check
    return person_check.check if person_check.is_person_file(data) else None
