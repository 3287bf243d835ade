"""The exit codes of commands, read off the answers of their methods; a declaration names one as `exit_code`."""

from typing import TYPE_CHECKING, Any

from holdproof.errors import NotFoundError, SkillLockedError, UnavailableError
from holdproof.lazy import lazy_module
from holdproof.model.verdicts import Verdict

if TYPE_CHECKING:
    from holdproof.model import skills
else:
    skills = lazy_module("holdproof.model.skills")


def exit_absent(answer: Any) -> int:
    """Return 3, as for an absent record, where the method answers that there was nothing."""
    return 0 if answer else NotFoundError.exit_code


def exit_verdict(answer: Any) -> int:
    """Return the code of the answer's verdict."""
    return int(answer.verdict.exit_code)


def exit_unsound(answer: Any) -> int:
    """Return 20, as for tampered records, unless the answer is `ok`."""
    return 0 if answer.ok else int(Verdict.TAMPERED.exit_code)


def exit_findings(answer: Any) -> int:
    """Return the code of the gravest finding; 6 where something could only not be read."""
    if not answer:
        return 0
    gravest = max(int(finding.verdict.exit_code) for finding in answer)
    return gravest or UnavailableError.exit_code


def exit_skills(answer: Any) -> int:
    """Return 5, as for a refused load, unless every skill is the approved one."""
    approved = all(skill.state is skills.SkillState.APPROVED for skill in answer.items)
    return 0 if approved else SkillLockedError.exit_code
