"""The MCP face and the one place that acts."""
