"""Everything a store has, by noun."""

from holdfast.faces import Face
from holdfast.ops.access import Access
from holdfast.ops.decisions import Decisions
from holdfast.ops.knowledge import Knowledge
from holdfast.ops.proofs import Evidence
from holdfast.ops.skills import Skills
from holdfast.ops.storage import Services


class Nouns(Decisions[Face], Evidence[Face], Knowledge[Face], Services[Face], Access[Face]):
    """The nouns of a store, shown by a face."""

    def __init__(self, face: Face) -> None:
        Decisions.__init__(self, face)
        Evidence.__init__(self, face)
        Knowledge.__init__(self, face)
        Services.__init__(self, face)
        Access.__init__(self, face)
        self.skills = Skills(face)
