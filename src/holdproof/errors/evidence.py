"""What evidence raises: formats, proofs, keys, the lockdown."""

from holdproof.errors.root import ConflictError, HoldproofError

# --- formats and proofs ------------------------------------------------------------------------------------------


class FormatError(HoldproofError):
    """The bytes are not what they claim to be; they were refused and nothing was changed."""

    code, status, exit_code = "format.invalid", 422, 2


class BadKeyError(FormatError):
    """The key is malformed, weak, of the wrong kind or locked; supply another, or its passphrase."""

    code = "format.key"


class LispError(FormatError):
    """The text is no Lisp data that may be read, at the named line and column; nothing was evaluated or changed."""

    code = "format.lisp"


class ProofError(FormatError):
    """The signature or proof does not hold: treat the record as unproven."""

    code, exit_code = "proof.invalid", 20


class RevokedKeyError(ConflictError):
    """The key was revoked: rotate its role (`holdproof keys rotate`), then sign again."""

    code, exit_code = "key.revoked", 12


class UnknownKeyError(ConflictError):
    """This key is not in the keyring: bring the key files over, or let root admit the key (`holdproof keys rotate`)."""

    code, exit_code = "key.unknown", 12


# --- the lockdown ------------------------------------------------------------------------------------------------


class LockedError(HoldproofError):
    """Tampering was found and the store is locked: run `holdproof verify`, then unlock with a statement of root."""

    code, status, exit_code = "locked", 423, 5


class SkillLockedError(LockedError):
    """The skill was not loaded: look at what changed (`holdproof skills status`), then approve the file you trust."""

    code = "locked.skill"
