"""Prompts for models: texts that a person picks, with the records they are about.

A prompt names the methods whose answers it shows and those that it tells the model to use; it is offered to a caller
who may use all of them, and its arguments are parameters of the methods it shows.
"""

from dataclasses import dataclass
from typing import Final

MethodName = tuple[str, str]
"""A resource and one of its methods."""


@dataclass(frozen=True, slots=True)
class PromptSpec:
    """One prompt: what it is for, what it asks, and which records it shows."""

    name: str
    title: str
    summary: str
    text: str
    shows: tuple[MethodName, ...]
    """What is put below the text, as resources."""
    arguments: tuple[str, ...]
    """The parameters of what it shows that the person fills in; the text names them in braces."""
    uses: tuple[MethodName, ...] = ()
    """Methods whose tools the text tells the model to call; it names them as `{resource_method}`."""


PROMPTS: Final = (
    PromptSpec(
        name="explain_flow",
        title="Explain a flow",
        summary="Say what a flow did and why, from its record.",
        text=(
            "Explain the flow {flow_id} to somebody who was not there. Its timeline is below, oldest event first; if it"
            " has a next_cursor, read on with {flows_timeline}. Say in this order: what it was asked to do and on what"
            " data; what it did, step by step; what a person decided, who, and in which words; how it ended, and if it"
            " failed, at which step and with which error. Name steps and escalations by their ids. Say only what the"
            " record shows; where it shows nothing, and where a step is in doubt, say so."
        ),
        shows=(("flows", "timeline"),),
        arguments=("flow_id",),
        uses=(("flows", "timeline"),),
    ),
    PromptSpec(
        name="answer_escalation",
        title="Prepare the answer to an escalation",
        summary="Lay out what an agent asks a person to decide, before the person answers.",
        text=(
            "A person is about to answer the escalation {id}, which is below. Help them to decide: read the timeline of"
            " its flow with {flows_timeline}, then say what is asked and why, what changes if it is approved and what"
            " if it is rejected, until when an answer counts and what happens without one, and what in the proposal or"
            " the record does not fit the reason given. List what you could not find out. Do not answer it yourself and"
            " do not recommend an answer without naming the record that it rests on: the decision is the person's."
        ),
        shows=(("escalations", "get"),),
        arguments=("id",),
        uses=(("flows", "timeline"),),
    ),
    PromptSpec(
        name="prove_decision",
        title="Prove a decision",
        summary="Show that what a flow decided is in the log as it was recorded, and give the file that proves it.",
        text=(
            "Show that the decisions of the flow {flow_id} stand in the log as they were recorded. The flow and the"
            " newest signed head are below. Verify the store with {verify_run} and report its verdict and every finding"
            " word by word. List the entries of the flow with {audit_trail} (flow_id {flow_id}) and prove the one that"
            " matters with {log_prove}. Then export the bundle with {bundle_export} (subject {flow_id}, kind flow): it"
            " is checked offline, without trust in this server. If anything is not verified, say that first."
        ),
        shows=(("flows", "get"), ("log", "head")),
        arguments=("flow_id",),
        uses=(("verify", "run"), ("audit", "trail"), ("log", "prove"), ("bundle", "export")),
    ),
)
