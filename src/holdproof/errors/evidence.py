"""Errors of formats, proofs and keys, and of the lockdown."""

from holdproof.errors.root import ConflictError, HoldproofError

# --- formats and proofs ------------------------------------------------------------------------------------------


class FormatError(HoldproofError):
    """The data does not have the expected format; check the file or its source. Nothing was changed."""

    code = "format.invalid"
    generic = True
    status = 422
    exit_code = 2


class BadKeyError(FormatError):
    """The key is malformed, weak, of the wrong kind or locked; supply another, or its passphrase."""

    code = "format.key"


class LispError(FormatError):
    """Correct the Lisp text at the named line and column; nothing was evaluated or changed."""

    code = "format.lisp"


class ProofError(FormatError):
    """The signature or proof is invalid: treat the record as unproven."""

    code = "proof.invalid"
    exit_code = 20


class TamperedError(HoldproofError):
    """A record differs from its entry in the log: run `holdproof verify`, and restore a backup. Nothing was run."""

    code = "evidence.tampered"
    status = 409
    exit_code = 20


class RevokedKeyError(ConflictError):
    """The key was revoked: rotate its role (`holdproof keys rotate`), then sign again."""

    code = "key.revoked"
    exit_code = 12


class UnknownKeyError(ConflictError):
    """This key is not in the keyring: copy the key files here, or let root add the key (`holdproof keys rotate`)."""

    code = "key.unknown"
    exit_code = 12


class RetentionHeldError(ConflictError):
    """A retention floor or a legal hold keeps this: wait, or let root lift the rule (`holdproof retention lift`)."""

    code = "retention.held"


# --- the lockdown ------------------------------------------------------------------------------------------------


class LockedError(HoldproofError):
    """The store is locked: run `holdproof verify`, restore a backup, then `holdproof unlock --reason TEXT`."""

    code = "locked"
    status = 423
    exit_code = 5


class SkillLockedError(LockedError):
    """The skill was not loaded: look at what changed (`holdproof skills status`), then approve the file you trust."""

    code = "locked.skill"


class SkillUnapprovedError(SkillLockedError):
    """Nobody approved this file, so it was not loaded: look at it, then `holdproof skills approve PATH --by NAME`."""

    code = "locked.skill.unapproved"
