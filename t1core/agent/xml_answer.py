"""Terminus-2's XML form of an answer, as Harbor 0.25 reads it: not as XML, but by its tags, verbatim in between.

    <response><analysis>..</analysis><plan>..</plan>
    <commands><keystrokes duration="0.1">ls
    </keystrokes></commands><task_complete>true</task_complete></response>

The first <response> counts, and the first of each section in it. Entities stay as they are written. A missing
</response> is let pass without a word, as Harbor does. An answer that claims completion is never void because of its
commands.
"""

import re

from t1core.agent.response import DEFAULT_DURATION_S, Command, Response, bounded_duration

_SECTIONS = ("analysis", "plan", "commands", "task_complete")
_REQUIRED = _SECTIONS[:3]
_KEYSTROKES = re.compile(r"<keystrokes([^>]*)>(.*?)</keystrokes>", re.DOTALL)
_DURATION = re.compile(r"""duration\s*=\s*["']([^"']*)["']""")
_COMPLETE = re.compile(r"<task_complete>\s*true\s*</task_complete>", re.IGNORECASE)
_UNQUOTED = re.compile(r"""(\w+)\s*=\s*([^"'\s>]+)""")
_SINGLE_QUOTED = re.compile(r"(\w+)\s*=\s*'[^']*'")
_ENTITIES = ("&lt;", "&gt;", "&amp;", "&quot;", "&apos;")


def parse_xml_answer(text: str) -> Response:
    """Parse an answer. Never raises: what is wrong stands in `errors`."""
    repairs: list[str] = []
    warnings: list[str] = []
    content = _content(text, repairs, warnings)
    if not content:
        return Response(
            errors=("the answer holds no <response>",), repairs=tuple(repairs), warnings=tuple(warnings)
        )
    is_complete = _COMPLETE.search(content) is not None
    sections = _sections(content)
    _check_sections(content, sections, warnings)
    errors: tuple[str, ...] = ()
    commands: tuple[Command, ...] = ()
    if sections.get("commands"):
        commands = _commands(sections["commands"], warnings)
    elif is_complete:
        pass
    elif "commands" in sections:
        warnings.append("<commands> is empty: nothing was typed")
    else:
        errors = ("missing <commands>",)
    return Response(
        commands,
        is_complete,
        sections.get("analysis", ""),
        sections.get("plan", ""),
        errors,
        tuple(repairs),
        tuple(warnings),
    )


def _content(text: str, repairs: list[str], warnings: list[str]) -> str:
    opening, closing = "<response>", "</response>"
    start, first_end = text.find(opening), text.find(closing)
    if start < 0:
        return ""
    if text[:start].strip():
        repairs.append("text before <response> was dropped")
    if first_end >= 0 and text[first_end + len(closing) :].strip():
        repairs.append("text after </response> was dropped")
        if text.count(opening) > 1:
            warnings.append(f"{text.count(opening)} responses were given, and only the first counts")
    end = text.find(closing, start)
    return text[start + len(opening) : end if end >= 0 else len(text)].strip()


def _sections(content: str) -> dict[str, str]:
    found = {}
    for name in _SECTIONS:
        whole = re.search(rf"<{name}>(.*?)</{name}>", content, re.DOTALL)
        if whole:
            found[name] = whole[1].strip()
        elif re.search(rf"<{name}\s*/>", content):
            found[name] = ""
    return found


def _check_sections(content: str, sections: dict[str, str], warnings: list[str]) -> None:
    warnings += [f"missing <{name}>" for name in _REQUIRED if name not in sections]
    warnings += [f"unknown tag <{name}>" for name in sorted(set(_outer_tags(content)) - set(_SECTIONS))]
    for name in _SECTIONS:
        count = len(re.findall(rf"<{name}(?:\s|>|/>)", content))
        if count > 1:
            warnings.append(f"<{name}> was given {count} times, and only the first counts")
    places = {name: re.search(rf"<{name}(?:\s|>|/>)", content) for name in _REQUIRED}
    order = sorted((name for name in _REQUIRED if places[name]), key=lambda name: places[name].start())
    if order != [name for name in _REQUIRED if places[name]]:
        warnings.append(f"sections are expected in the order {', '.join(_REQUIRED)}, not {', '.join(order)}")


def _outer_tags(content: str) -> list[str]:
    """Names of the tags that no other tag encloses, as far as depth can be told by counting tags."""
    names = []
    depth = place = 0
    while (start := content.find("<", place)) >= 0:
        end = content.find(">", start)
        if end < 0:
            break
        tag = content[start + 1 : end]
        place = end + 1
        if tag.startswith(("!", "?")):
            continue
        if tag.startswith("/"):
            depth -= 1
            continue
        if depth == 0:
            name = (tag.split() or [""])[0] if " " in tag else tag
            names.append(name.removesuffix("/"))
        depth += not tag.endswith("/")
    return names


def _commands(content: str, warnings: list[str]) -> tuple[Command, ...]:
    found = _KEYSTROKES.findall(content)
    commands = []
    for number, (attributes, keystrokes) in enumerate(found, start=1):
        _check_attributes(attributes, number, warnings)
        commands.append(Command(keystrokes, _duration(attributes, number, warnings)))
        if number < len(found) and not keystrokes.endswith("\n"):
            warnings.append(f"command {number} does not end with a line break: the next is typed behind it")
    warnings += [f"{entity} is typed as it is written" for entity in _ENTITIES if entity in content]
    if "\\r\\n" in content:
        warnings.append("\\r\\n is not needed, \\n is enough")
    return tuple(commands)


def _duration(attributes: str, number: int, warnings: list[str]) -> float:
    written = _DURATION.search(attributes)
    if written is None:
        warnings.append(f"command {number} has no duration, {DEFAULT_DURATION_S:g} s is taken")
        return DEFAULT_DURATION_S
    try:
        return bounded_duration(float(written[1]))
    except ValueError:
        warnings.append(
            f"command {number}: duration {written[1]!r} is no number, {DEFAULT_DURATION_S:g} s is taken"
        )
        return DEFAULT_DURATION_S


def _check_attributes(attributes: str, number: int, warnings: list[str]) -> None:
    warnings += [
        f"command {number}: {name} should be quoted, {name}={value!r}"
        for name, value in _UNQUOTED.findall(attributes)
    ]
    warnings += [
        f"command {number}: double quotes belong around {name}" for name in _SINGLE_QUOTED.findall(attributes)
    ]
    warnings += [
        f"command {number}: unknown attribute {name}"
        for name in re.findall(r"(\w+)\s*=", attributes)
        if name != "duration"
    ]
