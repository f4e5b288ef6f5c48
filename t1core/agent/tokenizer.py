"""ChatML over a byte-level BPE, with token ids as the truth.

History is never re-encoded: a turn's prompt is the previous prompt, the sampled ids as they are, and newly encoded
context. Text of others (instructions, terminal output) is encoded with specials switched off, so a terminal that prints
`<|im_end|>` cannot close a message.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

# A word is its own token wherever it stands, after a space, a slash or a quote, so that copying a name is repeating an
# id. Punctuation keeps its neighbouring blanks; digits stand alone.
_PIECES = Regex(r"[A-Za-z]+|[0-9]|[^\S\n]?[^A-Za-z0-9\s]+[^\S\n]?|\s")
END_OF_TEXT, IM_START, IM_END = "<|endoftext|>", "<|im_start|>", "<|im_end|>"


class ChatTokenizer:
    """Encodes ChatML pieces. Ids are int32 arrays."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.encode_special_tokens = True
        ids = {name: tokenizer.token_to_id(name) for name in (END_OF_TEXT, IM_START, IM_END)}
        missing = [name for name, token_id in ids.items() if token_id is None]
        if missing:
            raise ValueError(
                f"the tokenizer lacks the ChatML specials {', '.join(missing)}; use one that has them"
            )
        self.im_start: int = ids[IM_START]
        self.im_end: int = ids[IM_END]
        self.end_of_text: int = ids[END_OF_TEXT]
        self._newline = self.encode("\n")

    @classmethod
    def load(cls, directory: str | Path) -> "ChatTokenizer":
        """Read `tokenizer.json` of a Hugging Face directory. ValueError when it is missing."""
        path = Path(directory) / "tokenizer.json"
        if not path.is_file():
            raise ValueError(f"no tokenizer.json in {directory}; name a Hugging Face directory that has one")
        return cls(Tokenizer.from_file(str(path)))

    @property
    def vocab_size(self) -> int:
        return self._tokenizer.get_vocab_size()

    @property
    def stop_token_ids(self) -> tuple[int, ...]:
        return (self.im_end, self.end_of_text)

    def encode(self, text: str) -> np.ndarray:
        """Plain text to ids; specials inside it stay text."""
        return np.array(self._tokenizer.encode(text, add_special_tokens=False).ids, dtype=np.int32)

    def decode(self, ids: Iterable[int]) -> str:
        """Ids to text, specials left out."""
        return self._tokenizer.decode([int(i) for i in ids], skip_special_tokens=True)

    def decode_token(self, token_id: int) -> str:
        """The text of one token, a special by its name; bytes that are no text of their own show as U+FFFD."""
        return self._tokenizer.decode([token_id], skip_special_tokens=False)

    def message(self, role: str, text: str) -> np.ndarray:
        """`<|im_start|>role\\ntext<|im_end|>\\n`."""
        head = self.encode(f"{role}\n")
        return np.concatenate(
            [[self.im_start], head, self.encode(text), [self.im_end], self._newline]
        ).astype(np.int32)

    def generation_prompt(self) -> np.ndarray:
        """`<|im_start|>assistant\\n`."""
        return np.concatenate([[self.im_start], self.encode("assistant\n")]).astype(np.int32)

    def first_prompt(self, text: str) -> np.ndarray:
        """The prompt of the first turn."""
        return np.concatenate([self.message("user", text), self.generation_prompt()])

    def resumed_prompt(self, before: str, summary: np.ndarray, after: str) -> np.ndarray:
        """A first prompt with sampled ids inside it: they stay as they were sampled, less the specials among them."""
        specials = (self.im_start, self.im_end, self.end_of_text)
        kept = summary[~np.isin(summary, specials)]
        head = np.concatenate([[self.im_start], self.encode("user\n" + before)])
        tail = np.concatenate([self.encode(after), [self.im_end], self._newline, self.generation_prompt()])
        return np.concatenate([head, kept, tail]).astype(np.int32)

    def reply(self, text: str, *, closed: bool) -> np.ndarray:
        """What follows a completion: the end of the assistant's message unless it sampled one itself, then the next
        user message and the generation prompt."""
        close = self._newline if closed else np.concatenate([[self.im_end], self._newline]).astype(np.int32)
        return np.concatenate([close, self.message("user", text), self.generation_prompt()])


def train_tokenizer(texts: Iterable[str], directory: str | Path, *, vocab_size: int) -> ChatTokenizer:
    """Train a byte-level BPE over words, digits and punctuation with the ChatML specials; write `tokenizer.json`."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_PIECES, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[AddedToken(name, special=True) for name in (END_OF_TEXT, IM_START, IM_END)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    path = Path(directory)
    path.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path / "tokenizer.json"))
    return ChatTokenizer(tokenizer)
