"""Terminus-2 as Harbor has it: its words and its parsers, taken from the installed `harbor` package when a trial host
starts, so that a model trained on them reads under Harbor what it read here.

Harbor's agent module draws in half a gigabyte of clients, so it is not imported. The templates are files; the parsers
are modules that need nothing but the standard library; the sentences between turns stand in the methods of the agent
class, and are evaluated from its source. A Harbor in which one of them is not found is refused.
"""

import ast
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any

from t1core.agent.observation import Observer, Terminus2Observer
from t1core.agent.prompt import MARK, WORDINGS, around
from t1core.agent.protocol import Protocol
from t1core.agent.response import Command, Response, bounded_duration
from t1core.sandbox.sandbox import Terminal

_REPAIRED = "AUTO-CORRECTED"  # how Harbor marks a warning that an answer was mended
_WAY_OUT = "install the extra t1core[harbor], or use agent.prompt=full"


def _agent_directory() -> Path:
    spec = importlib.util.find_spec("harbor")
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(
            f"agent.prompt=terminus2 takes its words from the harbor package, which is missing: {_WAY_OUT}"
        )
    return Path(spec.submodule_search_locations[0]) / "agents" / "terminus_2"


def _unknown(what: str) -> ValueError:
    version = metadata.version("harbor")
    return ValueError(
        f"agent.prompt=terminus2: harbor {version} has no {what} where 0.25 has it, so what it tells a model is not "
        "known; install harbor 0.25, or use agent.prompt=full"
    )


def _module(path: Path) -> ModuleType:
    if not path.is_file():
        raise _unknown(path.name)
    name = f"_t1core_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def terminus2_protocol(name: str) -> Protocol:
    """Harbor's own parser of the form `name`, json or xml. Its texts stay as they are: one error, one block of
    warnings, of which the lines that say an answer was mended count as repairs too."""
    module = _module(_agent_directory() / f"terminus_{name}_plain_parser.py")
    parser = getattr(module, f"Terminus{name.upper()}PlainParser", None)
    if parser is None:
        raise _unknown(f"{name} parser")
    parse = parser().parse_response

    def parse_answer(text: str) -> Response:
        try:
            found = parse(text)
        except RecursionError:  # Harbor's own agent would end here
            return Response(errors=("No valid JSON found in response",))
        return Response(
            commands=tuple(
                Command(item.keystrokes, bounded_duration(item.duration)) for item in found.commands
            ),
            task_complete=bool(found.is_task_complete),
            analysis=str(found.analysis),
            plan=str(found.plan),
            errors=(found.error,) if found.error else (),
            repairs=tuple(line[2:] for line in found.warning.split("\n") if _REPAIRED in line),
            warnings=(found.warning,) if found.warning else (),
        )

    return Protocol(name, parse_answer)


class _Source:
    """The agent class's source, from which single methods and sentences are evaluated."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise _unknown(path.name)
        self._path = path
        nodes = ast.walk(ast.parse(path.read_text()))
        self._methods = {
            node.name: node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }

    def _method(self, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
        if name not in self._methods:
            raise _unknown(f"method {name}")
        return self._methods[name]

    def function(self, name: str) -> Callable[..., str]:
        """A method that needs nothing but its arguments, as a function of them."""
        node = self._method(name)
        node.args.args = [ast.arg(argument.arg) for argument in node.args.args]
        node.returns, node.decorator_list = None, []
        space: dict[str, Any] = {}
        exec(self._compiled(ast.Module([node], []), "exec"), space)
        return space[name]

    def sentence(self, method: str, target: str, *names: str) -> CodeType:
        """The text assigned to `target` in a method, by the one assignment that uses all these names."""
        for node in ast.walk(self._method(method)):
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == target:
                used = {item.id for item in ast.walk(node.value) if isinstance(item, ast.Name)}
                if isinstance(node.value, ast.JoinedStr) and used >= set(names):
                    return self._compiled(ast.Expression(node.value), "eval")
        raise _unknown(f"{target} in {method}")

    def statement(self, method: str, test: str) -> CodeType:
        """The `if` statement of a method with this test."""
        for node in ast.walk(self._method(method)):
            if isinstance(node, ast.If) and ast.unparse(node.test) == test:
                return self._compiled(ast.Module([node], []), "exec")
        raise _unknown(f"`if {test}` in {method}")

    def _compiled(self, tree: ast.AST, mode: str) -> CodeType:
        return compile(ast.fix_missing_locations(tree), str(self._path), mode)


@dataclass(frozen=True)
class Terminus2Wording:
    """See `prompt.Wording`: the same methods, in Harbor's words. Summaries are ours, and in our words: Harbor's are
    made by other calls than the trial's own."""

    first: str
    agent: SimpleNamespace
    confirm: Callable[..., str]
    limit: Callable[..., str]
    feedback: CodeType
    errors: CodeType
    warned: CodeType
    too_long: CodeType
    too_long_limit: CodeType
    too_long_warned: CodeType

    def first_prompt(self, instruction: str, screen: str) -> str:
        return self.first.format(instruction=instruction, terminal_state=screen)

    def confirm_completion(self, observation: str) -> str:
        return self.confirm(self.agent, observation)

    def explain_errors(self, errors: tuple[str, ...], warnings: tuple[str, ...] = ()) -> str:
        return eval(self.errors, {"feedback": self._feedback(errors, warnings), "self": self.agent})

    def mention_warnings(self, warnings: tuple[str, ...], observation: str, *, limit_bytes: int) -> str:
        # Harbor limits it a second time here, which cuts what the first time left: the note makes it too long again.
        observation = self.limit_output(observation, limit_bytes=limit_bytes)
        if not warnings:
            return observation
        names = {"feedback": self._feedback((), warnings), "terminal_output": observation, "self": self.agent}
        return eval(self.warned, names)

    def explain_length(self, *, max_new_tokens: int, warnings: tuple[str, ...]) -> str:
        limit = eval(self.too_long_limit, {"output_limit": max_new_tokens})
        told = eval(self.too_long, {"limit_str": limit})
        return told + "".join(
            eval(self.too_long_warned, {"parse_result": SimpleNamespace(warning=warning)})
            for warning in warnings
        )

    def limit_output(self, text: str, *, limit_bytes: int) -> str:
        return self.limit(self.agent, text, limit_bytes)

    def _feedback(self, errors: tuple[str, ...], warnings: tuple[str, ...]) -> str:
        space = {"feedback": "", "result": SimpleNamespace(error="".join(errors), warning="".join(warnings))}
        exec(self.feedback, space)
        return space["feedback"]

    @property
    def summary_request(self) -> str:
        return WORDINGS["full"].summary_request

    def resumed_prompt(
        self, instruction: str, screen: str, *, part: int, is_summarised: bool
    ) -> tuple[str, str]:
        ours = WORDINGS["full"]
        middle = (ours.carried if is_summarised else ours.lost).replace("{part}", str(part))
        before, _, after = middle.partition("{summary}")
        head, tail = around(self.first_prompt(f"{instruction.rstrip()}\n\n{MARK}", screen))
        return head + before, after + tail

    def observer(self, terminal: Terminal) -> Observer:
        return Terminus2Observer(terminal)


def terminus2_wording(protocol: str) -> Terminus2Wording:
    """Harbor's words for the form `protocol`, json or xml. ValueError where harbor is missing or says it elsewhere."""
    directory = _agent_directory()
    template = directory / "templates" / f"terminus-{protocol}-plain.txt"
    if not template.is_file():
        raise _unknown(template.name)
    source = _Source(directory / "terminus_2.py")
    agent = SimpleNamespace(options=SimpleNamespace(parser_name=protocol))
    answer_name, limit = source.function("_get_error_response_type"), source.function("_limit_output_length")
    agent._get_error_response_type = lambda: answer_name(agent)
    agent._limit_output_length = lambda text: text  # done before
    return Terminus2Wording(
        first=template.read_text(),
        agent=agent,
        confirm=source.function("_get_completion_confirmation_message"),
        limit=limit,
        feedback=source.statement("_handle_llm_interaction", "result.error"),
        errors=source.sentence("_run_agent_loop", "prompt", "feedback"),
        warned=source.sentence("_run_agent_loop", "observation", "feedback", "terminal_output"),
        too_long=source.sentence("_query_llm", "error_msg", "limit_str"),
        too_long_limit=source.sentence("_query_llm", "limit_str", "output_limit"),
        too_long_warned=source.sentence("_query_llm", "warnings_text", "parse_result"),
    )
