"""Everything a store has, by noun."""

from holdproof.faces import Face
from holdproof.ops.access import Access
from holdproof.ops.decisions import Decisions
from holdproof.ops.knowledge import Knowledge
from holdproof.ops.proofs import Evidence
from holdproof.ops.skills import Skills
from holdproof.ops.storage import Services


class Nouns(Decisions[Face], Evidence[Face], Knowledge[Face], Services[Face], Access[Face]):
    """The nouns of a store, shown by a face."""

    def __init__(self, face: Face) -> None:
        Decisions.__init__(self, face)
        Evidence.__init__(self, face)
        Knowledge.__init__(self, face)
        Services.__init__(self, face)
        Access.__init__(self, face)
        self.skills = Skills(face)
