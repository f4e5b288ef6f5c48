"""The sglang kind's checks that need no server: replies, configurations, versions, flags, weights."""

import asyncio
import base64
import hashlib
import json
import subprocess
import sys
import time
from multiprocessing import shared_memory
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from t1core.rollout.engine import EngineDead, EngineRefused
from t1core.rollout.sglang.client import Client
from t1core.rollout.sglang.flags import CPU_SHIM, server_environment, server_flags
from t1core.rollout.sglang.reply import BadReply, read_generation
from t1core.rollout.sglang.served_model import prepare_model, serving_config, stacked_shapes
from t1core.rollout.sglang.server import SERVE, Server, check_environment, free_port
from t1core.rollout.sglang.stored import (
    as_stored,
    content_hash,
    expected_hashes,
    stack_experts,
    wrong_parameters,
)
from t1core.rollout.sglang.version import parse_version
from t1core.rollout.sglang.weights import as_tensors, check_weights, tensor_payload, write_weights

CONFIG = {
    "architectures": ["Qwen3_5MoeForCausalLM"],
    "model_type": "qwen3_5_moe_text",
    "vocab_size": 10,
    "num_hidden_layers": 4,
    "num_experts": 2,
    "num_experts_per_tok": 2,
    "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
    "rope_parameters": {"rope_theta": 10000.0, "partial_rotary_factor": 0.5},
    "eos_token_id": 1,
}


def encoded(routes):
    return base64.b64encode(np.asarray(routes, dtype="<i4").tobytes()).decode()


def reply(**changes):
    """Prompt of 2, output (7, 9), hence 3 rows of 1 layer, top-2 of 4 experts."""
    meta = {
        "finish_reason": {"type": "stop", "matched": 9},
        "prompt_tokens": 2,
        "cached_tokens": 1,
        "weight_version": "4",
        "weight_versions": [{"version": "3", "start": 0, "end": 1}, {"version": "4", "start": 1, "end": 2}],
        "output_token_logprobs": [[-0.5, 7, None], [-1.25, 9, None]],
        "routed_experts": encoded([[[3, 0]], [[1, 2]], [[2, 0]]]),
    }
    return {"output_ids": [7, 9], "meta_info": meta | changes}


def read(answer, *, start=0):
    return read_generation(
        answer,
        num_prompt_tokens=2,
        routed_experts_start=start,
        num_layers=1,
        experts_per_token=2,
        num_experts=4,
        stop_token_ids=(9,),
        weight_version=3,
    )


def test_a_reply_becomes_sorted_rows_logprobs_and_a_version_for_each_token():
    got = read(reply())
    assert got.output_ids.tolist() == [7, 9] and got.output_logprobs.tolist() == [-0.5, -1.25]
    assert (
        got.routed_experts.tolist() == [[[0, 3]], [[1, 2]], [[0, 2]]] and got.routed_experts.dtype == np.uint8
    )
    assert got.output_versions.tolist() == [3, 4] and got.weight_version == 4
    assert (got.finish_reason, got.cached_tokens, got.routed_experts_start) == ("stop", 1, 0)


def test_a_server_without_version_spans_gives_every_token_its_one_version():
    assert read(reply(weight_versions=None)).output_versions.tolist() == [4, 4]


def test_rows_count_from_the_start_that_was_asked_for():
    assert len(read(reply(routed_experts=encoded([[[1, 2]], [[2, 0]]])), start=1).routed_experts) == 2
    with pytest.raises(BadReply, match="3 tokens need 2 rows"):
        read(reply(), start=1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"routed_experts": encoded([[[3, 0]], [[1, 2]]])}, "4 tokens need 3 rows"),
        ({"routed_experts": encoded([[[3, 0]], [[1, 2]], [[0, 0]]])}, "not strictly ascending"),
        ({"routed_experts": encoded([[[3, 0]], [[1, 4]], [[2, 0]]])}, "experts are 0..3"),
        ({"routed_experts": encoded(np.zeros((3, 1, 2)))}, "all 3 routing rows are zero"),
        ({"routed_experts": None}, "no routed_experts"),
        ({"routed_experts": "?"}, "can't be decoded"),
        ({"output_token_logprobs": [[-0.5, 7, None]]}, "don't name"),
        ({"output_token_logprobs": [[-0.5, 7, None], [-1.0, 8, None]]}, "don't name"),
        ({"output_token_logprobs": [[float("nan"), 7, None], [-1.0, 9, None]]}, "log-probs span"),
        ({"weight_versions": [{"version": "3", "start": 0, "end": 1}]}, "without a version"),
        ({"prompt_tokens": 3}, "3 prompt tokens of 2"),
        ({"finish_reason": {"type": "error"}}, "none of stop, length, abort"),
    ],
)
def test_a_reply_that_cannot_be_true_is_an_error_and_never_a_sample(changes, message):
    with pytest.raises(BadReply, match=message):
        read(reply(**changes))


def test_stopping_at_a_token_that_was_no_stop_token_is_an_error():
    answer = reply(output_token_logprobs=[[-0.5, 7, None], [-1.0, 8, None]])
    with pytest.raises(BadReply, match="not among stop_token_ids"):
        read(answer | {"output_ids": [7, 8]})


def test_an_abort_keeps_its_partial_answer_only_when_the_rows_came_with_it():
    aborted = {"finish_reason": {"type": "abort", "message": "Aborted"}}
    assert len(read(reply(**aborted)).output_ids) == 2
    waiting = read(reply(**aborted, routed_experts=None))
    assert (
        len(waiting.output_ids) == 0 and waiting.routed_experts is None and waiting.finish_reason == "abort"
    )


def test_the_served_configuration_says_what_sglang_reads():
    served = serving_config(CONFIG)
    assert served["full_attention_interval"] == 4
    assert served["partial_rotary_factor"] == 0.5
    assert served["eos_token_id"] is None
    assert "full_attention_interval" not in CONFIG, "the checkpoint's own configuration stays as it is"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["Qwen3NextForCausalLM"]}, "architectures"),
        ({"layer_types": ["full_attention", "linear_attention"] * 2}, "layer_types"),
        ({"partial_rotary_factor": 0.25}, "contradicts"),
    ],
)
def test_a_configuration_sglang_would_serve_wrongly_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        serving_config(CONFIG | changes)


def test_shapes_of_single_experts_stack_to_those_of_the_live_module():
    single = {
        "norm.weight": (8,),
        **{f"mlp.experts.{e}.{leaf}_proj.weight": (6, 8) for e in range(3) for leaf in ("gate", "up")},
        **{f"mlp.experts.{e}.down_proj.weight": (8, 6) for e in range(3)},
    }
    stacked = {
        "norm.weight": (8,),
        "mlp.experts.gate_up_proj": (3, 12, 8),
        "mlp.experts.down_proj": (3, 8, 6),
    }
    assert stacked_shapes(single) == stacked == stacked_shapes(stacked)


@pytest.fixture
def model(tmp_path):
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "config.json").write_text(json.dumps(CONFIG))
    weights = {"model.norm.weight": np.ones(4, np.float32), "lm_head.weight": np.ones((10, 4), np.float32)}
    save_file(weights, checkpoint / "model.safetensors")
    return prepare_model(checkpoint, into=tmp_path / "served")


def test_weights_that_do_not_fit_are_refused_before_anything_is_sent(model):
    good = {name: np.ones(shape, np.float32) for name, shape in model.shapes.items()}
    check_weights(good, model=model)
    for name, bad in (
        ("missing", {"lm_head.weight": good["lm_head.weight"]}),
        ("unknown", good | {"model.other": good["lm_head.weight"]}),
        ("shape", good | {"model.norm.weight": np.ones(5, np.float32)}),
        ("NaN", good | {"model.norm.weight": np.full(4, np.nan, np.float32)}),
    ):
        with pytest.raises(EngineRefused, match=name):
            check_weights(bad, model=model)


def test_a_payload_carries_read_only_arrays_by_value_bit_for_bit(tmp_path):
    import pickle

    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    array.setflags(write=False)
    tensors = as_tensors({"a": array})
    [(name, tensor)] = pickle.loads(base64.b64decode(tensor_payload(tensors)))
    assert name == "a" and tensor.numpy().tobytes() == array.tobytes()
    written = load_file(write_weights(tensors, into=tmp_path / "w") / "model.safetensors")
    assert written["a"].tobytes() == array.tobytes()


def sent_weights():
    """Two experts of one layer with hidden size 2, and what a server makes of them, by hand."""
    layer = "model.layers.0"
    sent = {
        "model.embed_tokens.weight": [[1.0, 2.0], [3.0, 4.0]],
        f"{layer}.self_attn.q_proj.weight": [[1.0, 1.0]],
        f"{layer}.self_attn.k_proj.weight": [[2.0, 2.0]],
        f"{layer}.self_attn.v_proj.weight": [[3.0, 3.0]],
        f"{layer}.linear_attn.in_proj_b.weight": [[4.0, 4.0]],
        f"{layer}.linear_attn.in_proj_a.weight": [[5.0, 5.0]],
        f"{layer}.linear_attn.A_log": [0.1],
        f"{layer}.mlp.experts.0.gate_proj.weight": [[1.0, 0.0]],
        f"{layer}.mlp.experts.0.up_proj.weight": [[2.0, 0.0]],
        f"{layer}.mlp.experts.0.down_proj.weight": [[3.0], [0.0]],
        f"{layer}.mlp.experts.1.gate_proj.weight": [[4.0, 0.0]],
        f"{layer}.mlp.experts.1.up_proj.weight": [[5.0, 0.0]],
        f"{layer}.mlp.experts.1.down_proj.weight": [[6.0], [0.0]],
    }
    held = {
        "model.embed_tokens.weight": [[1.0, 2.0], [3.0, 4.0], *[[0.0, 0.0]] * 62],
        f"{layer}.qkv_proj.weight": [[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]],
        f"{layer}.linear_attn.in_proj_ba.weight": [[4.0, 4.0], [5.0, 5.0]],
        f"{layer}.linear_attn.A_log": [0.1],
        f"{layer}.mlp.experts.w13_weight": [[[1.0, 0.0], [2.0, 0.0]], [[4.0, 0.0], [5.0, 0.0]]],
        f"{layer}.mlp.experts.w2_weight": [[[3.0], [0.0]], [[6.0], [0.0]]],
    }
    return {name: np.array(value, np.float32) for name, value in sent.items()}, held


def test_what_a_server_must_hold_is_fused_padded_and_typed_as_it_stores_it():
    sent, held = sent_weights()
    stored = as_stored(stack_experts(as_tensors(sent)), dtype=torch.bfloat16)
    expected = expected_hashes(stored)
    by_hand = {}
    for name, value in held.items():
        tensor = torch.tensor(value, dtype=torch.float32 if "A_log" in name else torch.bfloat16)
        raw = tensor.view(torch.uint8).numpy().tobytes()
        by_hand[name] = hashlib.sha256(raw).hexdigest()[:16]
    assert expected == by_hand and not wrong_parameters(expected, by_hand | {"rotary.buffer": "0"})


def test_one_parameter_that_differs_or_is_lacking_is_named():
    sent, _ = sent_weights()
    expected = expected_hashes(as_stored(stack_experts(as_tensors(sent)), dtype=torch.bfloat16))
    sent["model.layers.0.self_attn.k_proj.weight"] += 0.01
    held = expected_hashes(as_stored(stack_experts(as_tensors(sent)), dtype=torch.bfloat16))
    del held["model.layers.0.linear_attn.A_log"]
    assert wrong_parameters(expected, held) == [
        "model.layers.0.linear_attn.A_log",
        "model.layers.0.qkv_proj.weight",
    ]


def test_the_servers_checker_is_made_to_hash_as_we_do(tmp_path):
    """In a process as SGLang's children are: the launcher is imported as their main module."""
    package = tmp_path / "sglang" / "srt" / "utils"
    package.mkdir(parents=True)
    for directory in (package, *package.parents[:2]):
        (directory / "__init__.py").write_text("")
    (package / "weight_checker.py").write_text(
        "def _hash_tensor(tensor):\n    return 'a kernel of its own'\n"
    )
    program = (
        f"import runpy; runpy.run_path({str(SERVE)!r}, run_name='__mp_main__')\n"
        "import torch\n"
        "from sglang.srt.utils.weight_checker import _hash_tensor\n"
        "print(_hash_tensor(torch.arange(3, dtype=torch.bfloat16)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env={"PYTHONPATH": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.stdout.strip() == content_hash(torch.arange(3, dtype=torch.bfloat16)), done.stderr


@pytest.mark.parametrize(
    ("text", "sessions", "spans"),
    [("0.5.17", False, False), ("0.5.19.post1", False, True), ("0.5.23", True, True)],
)
def test_a_version_knows_its_update_protocol(text, sessions, spans):
    version = parse_version(text)
    assert (version.has_weight_sessions, version.has_version_spans) == (sessions, spans)


@pytest.mark.parametrize("text", ["0.5.16", "0.6.0", "main"])
def test_a_version_whose_contract_is_not_known_is_refused(text):
    with pytest.raises(ValueError, match="sglang"):
        parse_version(text)


@pytest.mark.parametrize("flag", ["--pp-size=2", "--enable-hierarchical-cache", "--speculative-algorithm"])
def test_a_flag_that_would_spoil_the_routes_is_refused_with_the_reason(tmp_path, flag):
    with pytest.raises(ValueError, match=flag.split("=")[0]):
        server_flags(
            tmp_path, device="cpu", dtype="float32", port=1, weight_version=0, context_length=64,
            max_running_requests=1, max_total_tokens=128, extra=[flag],
        )  # fmt: skip


def test_a_server_on_a_gpu_runs_the_kernels_that_capture_was_checked_with(tmp_path):
    sizes = dict(
        dtype="bfloat16", port=1, weight_version=0, context_length=64, max_running_requests=3,
        max_total_tokens=128,
    )  # fmt: skip
    on_gpu = " ".join(server_flags(tmp_path, device="cuda", gpu=1, gpu_memory_frac=0.3, **sizes))
    for part in (
        *("--attention-backend triton", "--moe-runner-backend triton", "--linear-attn-backend triton"),
        *("--base-gpu-id 1", "--mem-fraction-static 0.3", "--cuda-graph-max-bs-decode 3"),
    ):
        assert part in on_gpu
    eager = " ".join(server_flags(tmp_path, device="cuda", cuda_graphs=False, **sizes))
    assert "--cuda-graph-backend-decode disabled" in eager
    assert "--base-gpu-id" not in server_flags(tmp_path, device="cpu", **sizes)


def test_the_servers_environment_is_not_ours(tmp_path):
    inherited = {"PYTHONPATH": "/ours", "SGLANG_RETURN_ORIGINAL_LOGPROB": "1", "LANG": "C"}
    environment = server_environment(device="cpu", scratch=tmp_path, inherited=inherited)
    assert environment["PYTHONPATH"] == str(CPU_SHIM) and environment["LANG"] == "C"
    assert "SGLANG_RETURN_ORIGINAL_LOGPROB" not in environment
    assert "PYTHONPATH" not in server_environment(device="cuda", scratch=tmp_path, inherited=inherited)


def test_an_environment_without_sglang_is_refused_by_name(tmp_path):
    with pytest.raises(ValueError, match="no such file"):
        check_environment(tmp_path / "python", device="cpu")
    empty = tmp_path / "python3"
    empty.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    empty.chmod(0o755)
    with pytest.raises(ValueError, match="sglang is not installed there"):
        check_environment(empty, device="cpu")


# In SGLang's place: a server and a child of it that each hold shared memory, and sleep.
HOLDS_SHARED_MEMORY = """
import mmap, os, time, warnings
warnings.simplefilter("ignore")  # a fork beside the launcher's thread
path = f"/dev/shm/t1-test-{os.getpid()}"
def hold(path):
    with open(path, "w+b") as file:
        file.truncate(4096)
        return mmap.mmap(file.fileno(), 4096)
if not os.fork():
    held = hold(path + "-child")
    time.sleep(600)
held = hold(path)
while not os.path.exists(path + "-child"):
    time.sleep(0.01)
time.sleep(0.2)
print(path, path + "-child", flush=True)
time.sleep(600)
"""


def test_a_server_goes_when_the_process_that_started_it_is_killed(tmp_path):
    """The launcher's watcher, with a long sleep in SGLang's place."""
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text("")
    (tmp_path / "sglang" / "launch_server.py").write_text(HOLDS_SHARED_MEMORY)
    parent = (
        "import subprocess, sys, time\n"
        f"child = subprocess.Popen([sys.executable, {str(SERVE)!r}, 'launch'], stdin=subprocess.PIPE,\n"
        f"    stdout=subprocess.PIPE, start_new_session=True, env={{'PYTHONPATH': {str(tmp_path)!r}}})\n"
        "held = child.stdout.readline().decode().strip()\n"
        "print(child.pid, held, flush=True)\n"
        "time.sleep(600)\n"
    )
    starter = subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE, text=True)
    pid, *held = starter.stdout.readline().split()
    pid = int(pid)
    assert len(held) == 2 and all(Path(path).exists() for path in held)
    starter.kill()
    starter.wait()
    deadline = time.monotonic() + 10
    while _is_running(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _is_running(pid)
    assert [path for path in held if Path(path).exists()] == [], "shared memory is left"


def test_a_killed_server_leaves_no_shared_memory_and_takes_nobody_elses(tmp_path):
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text("")
    (tmp_path / "sglang" / "launch_server.py").write_text(HOLDS_SHARED_MEMORY)
    ours = shared_memory.SharedMemory(create=True, size=64)
    server = Server(
        Path(sys.executable), flags=[], environment={"PYTHONPATH": str(tmp_path)},
        log_file=tmp_path / "server.log", name="killed",
    )  # fmt: skip
    try:
        deadline = time.monotonic() + 60
        while not server.log_file.read_text().endswith("\n") and time.monotonic() < deadline:
            time.sleep(0.05)
        held = server.log_file.read_text().split()
        assert len(held) == 2 and all(Path(path).exists() for path in held)
        server.kill()
        assert [path for path in held if Path(path).exists()] == []
        assert Path("/dev/shm", ours.name).exists()
    finally:
        server.kill()
        ours.close()
        ours.unlink()


def test_a_server_that_hangs_up_and_then_ends_is_told_with_the_end_of_its_log(tmp_path):
    """A crashed scheduler: the socket goes first, the process a moment later."""
    (tmp_path / "sglang").mkdir()
    (tmp_path / "sglang" / "__init__.py").write_text("")
    (tmp_path / "sglang" / "launch_server.py").write_text(
        "import socket, sys, time\n"
        "listening = socket.create_server(('127.0.0.1', int(sys.argv[1])))\n"
        "print('listens', flush=True)\n"
        "listening.accept()[0].close()\n"
        "print('RuntimeError: the scheduler ran out of slots', flush=True)\n"
        "time.sleep(1)\n"
        "sys.exit(3)\n"
    )
    port = free_port()
    server = Server(
        Path(sys.executable), flags=[str(port)], environment={"PYTHONPATH": str(tmp_path)},
        log_file=tmp_path / "server.log", name="crashing",
    )  # fmt: skip

    async def ask():
        while "listens" not in server.log_file.read_text():
            await asyncio.sleep(0.05)
        client = Client(server, url=f"http://127.0.0.1:{port}", deadline_s=60)
        try:
            await client.bulk("/generate")
        finally:
            await client.close()

    try:
        with pytest.raises(
            EngineDead, match=r"ended with code 3; RuntimeError: the scheduler ran out of slots"
        ):
            asyncio.run(ask())
    finally:
        server.kill()


def _is_running(pid):
    """False for a process that is gone or only waits to be reaped."""
    try:
        with open(f"/proc/{pid}/stat") as stream:
            return stream.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
