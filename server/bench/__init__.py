"""Ladder against flat through the real server: streams of candidates, played by an MCP client, and what came of it."""
