"""The words an agent is given: two wordings of the first prompt, and the replies between turns.

Every template only appends: the first prompt and each reply are fixed once written, so a turn's tokens are always a
prefix of the next turn's.
"""

from dataclasses import dataclass

FULL_FIRST = """You work in a Linux terminal to solve a task. Each of your answers is one JSON object with these fields:
- "analysis": what the terminal shows and what is still missing
- "plan": what you will do next
- "commands": a list of objects with "keystrokes" (typed exactly as given; end a command with \\n) and "duration"
  (seconds to wait for it, 0.1 for instant commands)
- "task_complete": true when the task is done; you will be asked to confirm

Task:
{instruction}

Terminal:
{screen}"""

COMPACT_FIRST = "{instruction}\n{screen}"


@dataclass(frozen=True)
class Wording:
    """One set of templates."""

    first: str
    confirm: str
    parse_error: str

    def first_prompt(self, instruction: str, screen: str) -> str:
        return self.first.format(instruction=instruction.strip(), screen=screen.rstrip())

    def confirm_completion(self, observation: str) -> str:
        return self.confirm.format(observation=observation)

    def explain_errors(self, errors: tuple[str, ...]) -> str:
        return self.parse_error.format(errors="; ".join(errors))


WORDINGS = {
    "compact": Wording(
        first=COMPACT_FIRST,
        confirm="{observation}\nDone? Confirm or go on.",
        parse_error="Error: {errors}.",
    ),
    "full": Wording(
        first=FULL_FIRST,
        confirm=(
            "{observation}\n\nYou marked the task as complete. The work will now be graded and cannot be changed "
            'afterwards. If you are sure, answer with "task_complete": true once more; otherwise go on working.'
        ),
        parse_error="Your answer could not be used: {errors}. Answer with one valid JSON object.",
    ),
}


def limit_output(text: str, *, limit_bytes: int) -> str:
    """Keep half of `limit_bytes` from each end of a long observation and say how much was left out."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit_bytes:
        return text
    half = limit_bytes // 2
    head, tail = raw[:half].decode("utf-8", "ignore"), raw[-half:].decode("utf-8", "ignore")
    return f"{head}\n[... {len(raw) - 2 * half} bytes left out ...]\n{tail}"
