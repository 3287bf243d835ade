"""A tree of flows as a graph from left to right: who started whom, for which agent; laid out here, pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdproof.model.flows import Flow, FlowTree

MOST: Final = 60
_WIDTH: Final = 190.0
_HEIGHT: Final = 46.0
_GAP_X: Final = 56.0
_GAP_Y: Final = 12.0
_LETTERS: Final = 25


@dataclass(frozen=True, slots=True)
class FlowNode:
    """A flow in its place."""

    flow: Flow
    x: float
    y: float
    width: float
    height: float
    name: str
    agent: str
    here: bool


@dataclass(frozen=True, slots=True)
class FlowGraph:
    """What is drawn: nodes, the curves between them, and how many flows are left out."""

    nodes: tuple[FlowNode, ...]
    edges: tuple[str, ...]
    width: float
    height: float
    left_out: int


def lay_out(tree: FlowTree, here: str) -> FlowGraph:
    """Return the graph of a tree; a parent stands in the middle of what it started."""
    order: list[tuple[int, FlowTree]] = []
    coming = [(0, tree)]
    while coming:
        depth, node = coming.pop()
        order.append((depth, node))
        coming += [(depth + 1, child) for child in reversed(node.children)]
    visible = order[:MOST]
    names = {node.flow.flow_id for _, node in visible}
    heights: dict[str, float] = {}
    bottom = 0.0
    # Leaves take the next free line; a parent is known once all below it are, so it is placed on the way back.
    for _, node in visible:
        if not any(child.flow.flow_id in names for child in node.children):
            heights[node.flow.flow_id] = bottom
            bottom += _HEIGHT + _GAP_Y
    for _, node in reversed(visible):
        below = [heights[child.flow.flow_id] for child in node.children if child.flow.flow_id in heights]
        heights.setdefault(node.flow.flow_id, sum(below) / len(below) if below else 0.0)
    nodes = tuple(_node(node.flow, depth, heights[node.flow.flow_id], here) for depth, node in visible)
    width = max(node.x + node.width for node in nodes) + 2
    return FlowGraph(nodes, _edges(nodes), width, bottom - _GAP_Y + 4, len(order) - len(visible))


def _node(flow: Flow, depth: int, y: float, here: str) -> FlowNode:
    x = 2 + depth * (_WIDTH + _GAP_X)
    return FlowNode(flow, x, y + 2, _WIDTH, _HEIGHT, _cut(flow.flow_type), _cut(flow.agent_id), flow.flow_id == here)


def _cut(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS - 1]}…"


def _edges(nodes: Sequence[FlowNode]) -> tuple[str, ...]:
    by_id = {node.flow.flow_id: node for node in nodes}
    paths: list[str] = []
    for node in nodes:
        parent = by_id.get(node.flow.parent_flow_id or "")
        if parent is None:
            continue
        x = parent.x + parent.width
        y = parent.y + parent.height / 2
        end_y = node.y + node.height / 2
        middle = (x + node.x) / 2
        paths.append(f"M{x:.1f} {y:.1f}C{middle:.1f} {y:.1f} {middle:.1f} {end_y:.1f} {node.x:.1f} {end_y:.1f}")
    return tuple(paths)
