"""What an agent is told beside a task's instruction: the skills and the servers that the task's box has.

As Terminus-2 words it, so that a model trained here reads the same under Harbor. A skill is a directory with a SKILL.md
that opens with its name and description (the Agent Skills format); the model reads the file when it wants it.
"""

import shlex
from collections.abc import Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

import yaml

from t1core.records.task import McpServer, TaskEnvironment
from t1core.sandbox.sandbox import Box

DEADLINE_S = 10.0
MAX_SKILLS = 64


async def told_of(box: Box, environment: TaskEnvironment) -> str:
    """What goes after the instruction: "" for a task with neither. Raises what `Box.exec` raises."""
    return _servers(environment.mcp_servers) + await _skills(box, environment.skills_dir)


def _servers(servers: Sequence[McpServer]) -> str:
    if not servers:
        return ""
    lines = ["\n\nMCP Servers:", "The following MCP servers are available for this task."]
    for server in servers:
        what = "command" if server.transport == "stdio" else "url"
        lines.append(f"- {server.name}: {server.transport} transport, {what}: {server.address}")
    return "\n".join(lines) + "\n"


async def _skills(box: Box, directory: str) -> str:
    if not directory:
        return ""
    find = f"find {shlex.quote(directory)} -mindepth 2 -maxdepth 2 -name SKILL.md -type f | sort"
    found = await box.exec(find, timeout_s=DEADLINE_S)
    root = Element("available_skills")
    for path in found.stdout.decode(errors="replace").splitlines()[:MAX_SKILLS]:
        read = await box.exec(f"cat -- {shlex.quote(path)}", timeout_s=DEADLINE_S)
        opening = _opening(read.stdout.decode(errors="replace"))
        if opening is None:
            continue
        skill = SubElement(root, "skill")
        for name, text in (*opening, ("location", path)):
            SubElement(skill, name).text = text
    if not len(root):
        return ""
    indent(root, space="  ")
    return "\n" + tostring(root, encoding="unicode")


def _opening(text: str) -> tuple[tuple[str, str], tuple[str, str]] | None:
    """Name and description of a SKILL.md, None where its head does not say them."""
    head, found, _ = text.removeprefix("---\n").partition("\n---")
    if not found or not text.startswith("---\n"):
        return None
    try:
        fields = yaml.safe_load(head)
    except yaml.YAMLError:
        return None
    if not isinstance(fields, dict):
        return None
    name, description = fields.get("name"), fields.get("description")
    # As text, lists of lists of one another would be larger than any memory.
    if not isinstance(name, str | int | float) or not isinstance(description, str | int | float):
        return None
    return ("name", str(name)), ("description", str(description))
