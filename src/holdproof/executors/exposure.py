"""What a method's declaration says beside its function: who may call it, where it is offered, how it is shown.

Every client that is not Python is generated from these facts: HTTP and OpenAPI, MCP tools, the command line, the
server's permissions and the reference. The defaults are the careful ones: an agent may not call the method, it is no
tool, and its answer is printed field by field.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

Owned = Literal["agent", "flow", "escalation", "flow?"]
"""What an argument has to name for an agent to pass it; with `?` the argument may be left out."""


ToolSet = Literal["decide", "ask", "remember", "prove"]
"""What a model does with a tool. A set has nine tools or fewer: a model chooses worse among more, and pays for each."""


@dataclass(frozen=True, slots=True)
class AgentRule:
    """On what an agent may call a method."""

    owns: Mapping[str, Owned]
    """Which arguments have to name something of the agent's own."""
    never: tuple[str, ...] = ()
    """Parameters that an agent may not pass at all."""
    refused: Mapping[str, Any] = field(default_factory=dict)
    """Arguments that an agent may not pass with this value."""
    not_while_asked: bool = False
    """Whether an agent may not call it on a flow that waits for an approval: the person decides on what is there."""
    moves: str | None = None
    """The parameter that names a flow's next status: a flow that waits for an approval is moved on by the answer."""


def owns(**arguments: Owned) -> AgentRule:
    """Let agents call a method if these arguments name something of their own."""
    return AgentRule(arguments)


OWN_FLOW: Final = owns(flow_id="flow")
OWN_FLOW_UNASKED: Final = AgentRule({"flow_id": "flow"}, not_while_asked=True)
OWN_AGENT: Final = owns(agent_id="agent")
OWN_ESCALATION: Final = owns(id="escalation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """The facts of one method."""

    # --- who may call it (server/permissions.py) ---
    agent: AgentRule | None = None
    """On what agents may call it; None: not at all, unless their token grants the resource."""
    grantable: bool = True
    """Whether a token that grants the resource to an agent grants this method too."""
    public: bool = False
    """Whether anybody may call it at the server: an argument proves the right, as the token of a promise does."""
    internal: bool = False
    """Whether only the server itself calls it: it tries secrets, or ends what others use."""
    delegates: bool = False
    """Whether it gives rights away: not for callers that have only some of them."""
    reveals: bool = False
    """Whether it reads what was encrypted: not for auditors."""
    exports: bool = False
    """Whether it gives records away as a document: each call leaves an entry in the log."""
    read_only_with: Mapping[str, Any] = field(default_factory=dict)
    """The arguments with which a method that writes changes nothing: auditors and read-only tools may call it so."""
    from_caller: tuple[str, ...] = ()
    """Parameters that the server fills with the caller's own fact of that name, whatever was passed."""
    like: tuple[str, str] | None = None
    """Of a method of a block: the method of the store, as (resource, method), that does the same outside a block. Its
    permissions apply, and `**options` are its parameters."""

    outside_steps: bool = False
    """Of a method of a flow: whether it is recorded as a step of its own, so that the function of no step may call
    it."""

    # --- where it is offered ---
    local: bool = False
    """Whether it needs or gives what cannot leave the process or the machine: it is offered to Python only."""
    tool: ToolSet | None = None
    """The set of MCP tools that it is in; None: it is offered only where its whole resource is."""
    tool_alias: str = ""
    """The tool's name, where it is not the resource's and the method's."""
    tool_defaults: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of the tool where its defaults differ: clients of tools give up after a minute or so."""
    task: bool = False
    """Whether its tool waits for a person's answer: for clients that know MCP tasks a call is one. What it returns has
    `status`, `created_at` and `resolved_at`, and it takes `timeout_s`."""
    uri: str = ""
    """The address of its answer as an MCP resource, `holdproof://` before it: an RFC 6570 template."""
    media_type: str = "application/json"
    """What its answer is, as an MCP resource."""
    command: bool = True
    """Whether there is a generated command; False where one is written by hand, or none makes sense."""
    alias: str = ""
    """A second name of the command, as `export car` or `unlock`."""
    storeless: bool = False
    """Whether it looks at files only: its command needs no store and opens none."""

    creates: bool = False
    """Whether the first thing in a new store may come from it: only such a command creates a store."""

    # --- how it is shown ---
    columns: tuple[str, ...] = ()
    """The fields and properties of each value of a list that the command shows as columns, the most important first: a
    narrow terminal has no room for the last. Or those that its drawing draws."""
    example: str = ""
    """The arguments of a call on the command line, as a shell reads them."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """What parameters mean, where that differs from what the name usually means (api/parameters.py)."""
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The words that a parameter takes, where it takes a few only: schemas name them; the operation refuses others."""
    bounds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """The least and the most that a parameter takes, for schemas; without a word here `limit` takes 1 to 1,000."""
    variables: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that the command reads parameters from: every user of a machine can see arguments."""
    files: tuple[str, ...] = ()
    """Parameters that the command reads from a file, or from stdin for `-`."""
    document: str = ""
    """The field of the answer that is a document of its own: the command prints it, or writes it with `--out`."""
    confirm: str = ""
    """The question that a person answers before the command runs; `{id}` stands for an argument."""
    confirm_unless: str = ""
    """The parameter that makes the question needless where it is passed."""
    draw: str = ""
    """How the command draws the answer, where it is neither fields nor columns (cli/draw.py); a stream drawn as `lines`
    is JSON lines, for people too."""
    note: Callable[[Any], str] | None = None
    """What the command adds on stderr, read off the answer: a warning, or what to do next; empty for nothing."""
    exit_code: Callable[[Any], int] | None = None
    """The exit code of the command, read off the answer."""

    def tool_name(self, resource: str, method: str) -> str:
        """The name of the method as a tool."""
        return self.tool_alias or f"{resource}_{method}"
