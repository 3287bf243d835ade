"""A proxy between an MCP client and any MCP server: every message recorded, tool calls decided by policies if asked.

It speaks no MCP of its own: messages are passed on as they are, so it works with every version of the protocol.
"""
