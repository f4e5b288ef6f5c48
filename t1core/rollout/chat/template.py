"""Messages to token ids through a model's chat template, with the place of every token in the text.

A message that contains the text of a special token cannot close itself or open another one: such text is hidden
from the template and encoded as plain characters.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, processors
from transformers.utils.chat_template_utils import render_jinja_template

Message = Mapping[str, Any]

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Characters of Unicode's private use area stand in for special tokens' texts while a template runs.
_OPEN, _CLOSE, _FIRST = "\ue000", "\ue001", 0xE100
_HIDDEN = re.compile(f"{_OPEN}(.){_CLOSE}", re.S)
_ANSWER = f"{_OPEN}answer{_CLOSE}"


class UnusableTemplate(ValueError):
    """The chat template can't render these messages, or not so that an answer can be found in what it renders."""


@dataclass(frozen=True)
class Rendering:
    """ids int32 [n]; token i is text[starts[i]:ends[i]] (int32 [n] each), tokens of one character overlap."""

    ids: np.ndarray
    text: str
    starts: np.ndarray
    ends: np.ndarray

    def tokens_of(self, start: int, end: int) -> tuple[int, int] | None:
        """The tokens that make up text[start:end], or None where the text's ends are not tokens' ends."""
        first = int(np.searchsorted(self.starts, start))
        last = int(np.searchsorted(self.ends, end, side="right"))
        is_whole = first < last and self.starts[first] == start and self.ends[last - 1] == end
        return (first, last) if is_whole else None


class ChatFormat:
    """A tokenizer, a chat template and the ids that end an answer."""

    def __init__(
        self, tokenizer: Tokenizer, *, template: str = CHATML, stop_token_ids: Sequence[int] = ()
    ) -> None:
        """Without `stop_token_ids` those of ChatML. ValueError where the tokenizer has none of them."""
        self._specials = _copy(tokenizer)
        self._plain = _copy(tokenizer)
        self._plain.encode_special_tokens = True
        self._template = template
        added = tokenizer.get_added_tokens_decoder().values()
        self._special_texts = sorted((t.content for t in added if t.special), key=len, reverse=True)
        found = [tokenizer.token_to_id(text) for text in ("<|im_end|>", "<|endoftext|>")]
        self.stop_token_ids = tuple(stop_token_ids) or tuple(i for i in found if i is not None)
        if not self.stop_token_ids:
            raise ValueError("nothing ends an answer: the tokenizer lacks <|im_end|>, name stop token ids")

    @classmethod
    def load(cls, directory: Path | str) -> "ChatFormat":
        """Tokenizer, template and stop ids of a Hugging Face directory; ChatML where it names no template."""
        directory = Path(directory)
        if not (directory / "tokenizer.json").is_file():
            raise ValueError(f"no tokenizer.json in {directory}; name a Hugging Face directory that has one")
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        config, generation = (
            _json(directory / name) for name in ("tokenizer_config.json", "generation_config.json")
        )
        separate = directory / "chat_template.jinja"
        template = separate.read_text() if separate.is_file() else config.get("chat_template") or CHATML
        if not isinstance(template, str):
            raise ValueError(
                f"{directory}: several chat templates; keep the one to use in chat_template.jinja"
            )
        stop = generation.get("eos_token_id") or ()
        return cls(
            tokenizer, template=template, stop_token_ids=(stop,) if isinstance(stop, int) else tuple(stop)
        )

    def render(self, messages: Sequence[Message], *, tools: Sequence[Any] | None = None) -> Rendering:
        """The prompt for the next answer. UnusableTemplate when the template raises."""
        return self._encode(self._text(messages, tools=tools))

    def after_answer(
        self, messages: Sequence[Message], index: int, *, tools: Sequence[Any] | None = None
    ) -> Rendering:
        """What the template writes behind the text of the assistant's message `index`: its end, the messages after
        it, and the generation prompt.
        """
        changed = [*messages]
        changed[index] = {"role": "assistant", "content": _ANSWER}
        _, found, after = self._text(changed, tools=tools).partition(_ANSWER)
        if not found or _ANSWER in after:
            raise UnusableTemplate(
                f"the chat template does not write the text of message {index} once and whole"
            )
        return self._encode(after)

    def text_of(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of ids, special tokens included."""
        return self._specials.decode([int(i) for i in ids], skip_special_tokens=False)

    def answer_ids(self, ids: np.ndarray) -> np.ndarray:
        """An answer's ids without the stop token it ends with, if it does."""
        return ids[:-1] if len(ids) and int(ids[-1]) in self.stop_token_ids else ids

    def _text(self, messages: Sequence[Message], *, tools: Sequence[Any] | None) -> str:
        try:
            rendered = render_jinja_template(
                conversations=[[self._hide(dict(message)) for message in messages]],
                tools=self._hide(list(tools)) if tools else None,
                chat_template=self._template,
                add_generation_prompt=True,
            )
        except (
            Exception
        ) as error:  # a template is a program of the model's makers: whatever it raises is its verdict
            raise UnusableTemplate(f"the chat template refuses these messages: {error}") from error
        return rendered[0][0] if isinstance(rendered, tuple) else rendered[0]

    def _hide(self, value: Any) -> Any:
        if isinstance(value, str):
            if _OPEN in value and value != _ANSWER:
                raise UnusableTemplate(
                    f"a message contains the private-use character {_OPEN!r}; leave it out"
                )
            for index, text in enumerate(self._special_texts):
                value = value.replace(text, f"{_OPEN}{chr(_FIRST + index)}{_CLOSE}")
            return value
        if isinstance(value, dict):
            return {key: self._hide(one) for key, one in value.items()}
        if isinstance(value, list):
            return [self._hide(one) for one in value]
        return value

    def _encode(self, text: str) -> Rendering:
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        shown: list[str] = []
        length = 0
        for index, piece in enumerate(_HIDDEN.split(text)):
            is_hidden = index % 2 == 1
            piece = self._special_texts[ord(piece) - _FIRST] if is_hidden else piece
            encoding = (self._plain if is_hidden else self._specials).encode(piece, add_special_tokens=False)
            ids += encoding.ids
            offsets += [(start + length, end + length) for start, end in encoding.offsets]
            shown.append(piece)
            length += len(piece)
        places = np.array(offsets, dtype=np.int32).reshape(-1, 2)
        return Rendering(np.array(ids, dtype=np.int32), "".join(shown), places[:, 0], places[:, 1])


def _copy(tokenizer: Tokenizer) -> Tokenizer:
    """An own copy, whose offsets keep the blanks that a post-processor would trim."""
    copy = Tokenizer.from_str(tokenizer.to_str())
    copy.post_processor = processors.ByteLevel(trim_offsets=False)
    return copy


def _json(path: Path) -> dict[str, Any]:
    return json.loads(path.read_text()) if path.is_file() else {}
