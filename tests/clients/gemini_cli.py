"""Gemini CLI without an account: the entry in its settings, its health check, tool calls, and the skill."""

import json
from collections.abc import Iterator
from typing import Final

from canned_model import ASKED, canned_model, seen_in_session
from node_box import NodeBox, Seen

PACKAGE: Final = "@google/gemini-cli"
BY_KEY: Final = "gemini-api-key"
TRUSTED: Final = {"GEMINI_CLI_TRUST_WORKSPACE": "true"}
"""In a folder that is not trusted it starts no server at all."""


def look(box: NodeBox) -> Iterator[Seen]:
    """Write the entry and list it; then the same through Gemini CLI's own command."""
    version = box.install(PACKAGE)
    settings = box.home / ".gemini/settings.json"

    def seen(step: str, words: str, *, ok: bool) -> Seen:
        return Seen("Gemini CLI", version, step, ok, words)

    written = box.run(box.kernelgate("config", "gemini-cli", "--write", *box.served()))
    for step, more, mark in (("a trusted folder", TRUSTED, "Connected"), ("any other folder", {}, "Disabled")):
        listed = box.run([box.program("gemini"), "mcp", "list"], more=more)
        lines = [line for line in listed.text.splitlines() if "kernelgate: " in line]
        end = lines[0].rpartition(" - ")[2] if lines else listed.text
        yield seen(f"`kernelgate config gemini-cli --write`, gemini mcp list in {step}", end, ok=end == mark)

    by_hand = written.stdout.strip().splitlines()[-1].split()
    wanted = json.loads(settings.read_text(encoding="utf-8"))
    settings.unlink()
    added = box.run([box.program(by_hand[0]), *by_hand[1:]])
    found = json.loads(settings.read_text(encoding="utf-8")) if settings.is_file() else {}
    # Gemini CLI leaves out what is empty.
    del wanted["mcpServers"]["kernelgate"]["env"]
    ok = added.status == 0 and found.get("mcpServers") == wanted["mcpServers"]
    yield seen("the line of `kernelgate config gemini-cli`", "makes the same entry" if ok else added.text, ok=ok)

    plugin = box.run(box.kernelgate("plugin", *box.served())).stdout.strip()
    box.run([box.program("gemini"), "skills", "install", "--consent", f"{plugin}/skills/kernelgate"])
    skills = box.run([box.program("gemini"), "skills", "list"]).text
    ok = "kernelgate [Enabled]" in skills
    yield seen('gemini skills install "$(kernelgate plugin)/skills/kernelgate"', "enabled" if ok else skills, ok=ok)

    with canned_model(*((f"mcp_kernelgate_{tool}", arguments) for tool, arguments in ASKED)) as model:
        # A key in the environment is not enough where the API is elsewhere: the settings must say that it is by key.
        changed = {**json.loads(settings.read_text(encoding="utf-8")), "security": {"auth": {"selectedType": BY_KEY}}}
        settings.write_text(json.dumps(changed), encoding="utf-8")
        reach = {**TRUSTED, "GOOGLE_GEMINI_BASE_URL": model.url, "GEMINI_API_KEY": "none"}
        words = ["-p", "go", "-m", "gemini-2.5-flash", "--approval-mode", "yolo", "--output-format", "json"]
        done = box.run([box.program("gemini"), *words], more=reach)
    yield from seen_in_session("Gemini CLI", version, model, done)
