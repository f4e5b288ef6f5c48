"""The words an agent is given: two wordings of the first prompt, the replies between turns, what is asked when the
context is full.

Every template only appends: the first prompt and each reply are fixed once written, so a turn's tokens are always a
prefix of the next turn's. A summary is the one exception, and starts a new stream.
"""

from dataclasses import dataclass
from typing import Protocol

from t1core.agent.observation import Observer, PlainObserver
from t1core.sandbox.sandbox import Terminal

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

FULL_FIRST_XML = """You work in a Linux terminal to solve a task. Each of your answers has this form:
<response>
<analysis>what the terminal shows and what is still missing</analysis>
<plan>what you will do next</plan>
<commands>
<keystrokes duration="0.1">ls -la
</keystrokes>
</commands>
<task_complete>false</task_complete>
</response>
Keystrokes are typed exactly as given; end a command with a line break inside the element. The duration is the number
of seconds to wait for it. Set task_complete to true when the task is done; you will be asked to confirm.

Task:
{instruction}

Terminal:
{screen}"""

COMPACT_FIRST = "{instruction}\n{screen}"


class Wording(Protocol):
    """All that a model is told, and how its terminal is looked at."""

    @property
    def summary_request(self) -> str:
        """Asks for a summary of the history."""
        ...

    def first_prompt(self, instruction: str, screen: str) -> str: ...

    def confirm_completion(self, observation: str) -> str:
        """After the first claim of completion."""
        ...

    def explain_errors(self, errors: tuple[str, ...], warnings: tuple[str, ...] = ()) -> str:
        """After an answer that could not be used."""
        ...

    def mention_warnings(self, warnings: tuple[str, ...], observation: str, *, limit_bytes: int) -> str:
        """After an answer that was used: the observation, and what was odd where this wording speaks of it."""
        ...

    def explain_length(self, *, max_new_tokens: int, warnings: tuple[str, ...]) -> str | None:
        """After an answer that was cut at `max_new_tokens`; None: it is read like any other."""
        ...

    def resumed_prompt(
        self, instruction: str, screen: str, *, part: int, is_summarised: bool
    ) -> tuple[str, str]:
        """The prompt after a summary: the text before the summary's own tokens, and the text after them. It names the
        `part` of the trial that begins, so that no two prompts of a trial are the same: answers to the same prompt
        would be taken for retries."""
        ...

    def limit_output(self, text: str, *, limit_bytes: int) -> str:
        """A long observation's both ends, half of `limit_bytes` each, and how much is missing between them."""
        ...

    def observer(self, terminal: Terminal) -> Observer: ...


@dataclass(frozen=True)
class OwnWording:
    """One set of templates of ours. `carried` and `lost` stand between the first prompt and the screen in the prompt
    that follows a summary: the first with one, the second where it failed."""

    first: str
    confirm: str
    parse_error: str
    summary_request: str
    carried: str
    lost: str

    def first_prompt(self, instruction: str, screen: str) -> str:
        return self.first.format(instruction=instruction.strip(), screen=screen.rstrip())

    def confirm_completion(self, observation: str) -> str:
        return self.confirm.format(observation=observation)

    def explain_errors(self, errors: tuple[str, ...], warnings: tuple[str, ...] = ()) -> str:
        """What was wrong with an answer that could not be used. These wordings leave warnings out."""
        return self.parse_error.format(errors="; ".join(errors))

    def mention_warnings(self, warnings: tuple[str, ...], observation: str, *, limit_bytes: int) -> str:
        """The observation after an answer that was used and yet odd. These wordings leave warnings out."""
        return observation

    def explain_length(self, *, max_new_tokens: int, warnings: tuple[str, ...]) -> str | None:
        """These wordings say nothing of it: what was cut fails to parse, or stands."""
        return None

    def limit_output(self, text: str, *, limit_bytes: int) -> str:
        return limit_output(text, limit_bytes=limit_bytes)

    def observer(self, terminal: Terminal) -> Observer:
        return PlainObserver(terminal)

    def resumed_prompt(
        self, instruction: str, screen: str, *, part: int, is_summarised: bool
    ) -> tuple[str, str]:
        """See `Wording.resumed_prompt`."""
        middle = (self.carried if is_summarised else self.lost).replace("{part}", str(part))
        before, _, after = middle.partition("{summary}")
        head, tail = around(self.first_prompt(f"{instruction.rstrip()}\n\n{MARK}", screen))
        return head + before, after + tail


WORDINGS = {
    "compact": OwnWording(
        first=COMPACT_FIRST,
        confirm="{observation}\nDone? Confirm or go on.",
        parse_error="Error: {errors}.",
        summary_request="No room is left. In a few words: what is done, what is missing?",
        carried="Part {part}. So far: {summary}",
        lost="Part {part}. What you did before is lost, its files are there.",
    ),
    "full": OwnWording(
        first=FULL_FIRST,
        confirm=(
            "{observation}\n\nYou marked the task as complete. The work will now be graded and cannot be changed "
            'afterwards. If you are sure, answer with "task_complete": true once more; otherwise go on working.'
        ),
        parse_error="Your answer could not be used: {errors}. Answer in the form that was asked for.",
        summary_request=(
            "The conversation is about to outgrow its window, and all of it but your next answer will be dropped. "
            "Write a summary for yourself, as plain text and not in the usual form: what you found out, what you "
            "changed and where, what is running, what is left to do, and what to do next."
        ),
        carried="This is part {part} of your work on it. Your own summary of what was before:\n{summary}",
        lost=(
            "This is part {part} of your work on it, and your notes of what was before are lost. Files you changed are "
            "as you left them: look before you act."
        ),
    ),
}
WORDINGS["full_xml"] = OwnWording(
    first=FULL_FIRST_XML,
    confirm=WORDINGS["full"].confirm.replace('"task_complete": true', "<task_complete>true</task_complete>"),
    parse_error=WORDINGS["full"].parse_error,
    summary_request=WORDINGS["full"].summary_request,
    carried=WORDINGS["full"].carried,
    lost=WORDINGS["full"].lost,
)


# Stands for a place in a prompt until ids are put there; private-use characters keep it out of any instruction.
MARK = "\ue000here\ue001"


def around(prompt: str) -> tuple[str, str]:
    """What stands before and after the mark."""
    before, _, after = prompt.partition(MARK)
    return before, after


def limit_output(text: str, *, limit_bytes: int) -> str:
    """Keep half of `limit_bytes` from each end of a long observation and say how much was left out."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= limit_bytes:
        return text
    half = limit_bytes // 2
    head, tail = raw[:half].decode("utf-8", "ignore"), raw[-half:].decode("utf-8", "ignore")
    return f"{head}\n[... {len(raw) - 2 * half} bytes left out ...]\n{tail}"
