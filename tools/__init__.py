"""How a candidate is examined: one file per MCP tool, what they share in `kit`, the device side in `worker`."""
