"""The resource of materials: what decisions rest on."""

from typing import TYPE_CHECKING

from holdproof.executors import OWN_FLOW, Executor, Reads, Resource, RunsWith
from holdproof.lazy import lazy_functions

if TYPE_CHECKING:
    from holdproof.upkeep import material_documents, materials
else:
    globals().update(lazy_functions("holdproof.upkeep", "material_documents materials"))


class MaterialsResource(Resource[Executor]):
    """What a decision rests on: models, tools, skills, memory, policies, code, human answers."""

    group = "Prove"

    get = Reads(materials.get, agent=OWN_FLOW, example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --json")
    cyclonedx = Reads(
        material_documents.cyclonedx,
        exports=True,
        agent=OWN_FLOW,
        document="text",
        example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --out bom.cdx.json",
    )
    sign = RunsWith(
        material_documents.sign,
        exports=True,
        document="text",
        example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --out materials.json",
    )
    check = Reads(
        material_documents.check,
        files=("document",),
        parameters={"document": "A file that `materials sign` wrote."},
        example="materials.json",
    )
