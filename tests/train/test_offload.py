"""Actor and critic take turns on a device: nothing changes on the way, and what cannot work is refused beforehand.

On a CPU the setting is refused, but the moves themselves are the same: storages are emptied and refilled.
"""

import pytest
import torch
from ppo_scenario import make_batch, pipelined_steps, settings, trainer

from t1core.train import offload
from t1core.train.host_memory import OffloadDemand, available_bytes, check_host_memory
from t1core.train.trainer import Trainer

STEP = dict(update_actor=True, expected_version_lag=0)
GIB = 2**30


def _held_bytes(learner):
    """Bytes of the learner's buffers and moments that are on its device."""
    tensors = [x for buffer in offload._buffers(learner) for x in (buffer.param_data, buffer.grad_data)]
    for param, state in offload._optimised(learner):
        tensors += [param.data, state["exp_avg"], state["exp_avg_sq"]]
    return sum({x.untyped_storage()._cdata: x.untyped_storage().nbytes() for x in tensors}.values())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_weights_moments_and_waiting_gradients_leave_and_come_back_to_the_bit(actor_path, precision):
    with trainer(actor_path, precision=precision) as made:
        made.train_batch(make_batch(), **STEP)
        streams = made._put(make_batch(seed=3), with_routes=True)
        made.actor.accumulate(
            streams.micro_batches, lambda out, micro: (out.float().square().mean(), None), replayed=True
        )
        assert made.actor.has_gradients
        gradients = [buffer.grad_data.clone() for buffer in offload._buffers(made.actor)]
        held, before = _held_bytes(made.actor), offload.state_checksum(made.actor)
        made.offload("actor")
        assert held > 0 and _held_bytes(made.actor) == 0
        made.reload("actor")
        assert _held_bytes(made.actor) == held
        assert offload.state_checksum(made.actor) == before
        for buffer, gradient in zip(offload._buffers(made.actor), gradients, strict=True):
            assert gradient.abs().max() > 0 and torch.equal(buffer.grad_data, gradient)
        made.actor.step()


def test_frozen_weights_leave_too(actor_path):
    with trainer(actor_path, critic_frozen=("^model.embed_tokens",)) as made:
        made.train_batch(make_batch(), **STEP)
        before = made.checksum("critic")
        made.offload("critic")
        weights = [weight.untyped_storage() for _, weight in made.critic.parameters()]
        assert not any(storage.nbytes() for storage in weights)
        made.reload("critic")
        assert made.checksum("critic") == before


def test_gradients_that_an_update_has_used_come_back_as_zeros(actor_path):
    with trainer(actor_path) as made:
        made.train_batch(make_batch(), **STEP)
        assert any(buffer.grad_data.abs().max() > 0 for buffer in offload._buffers(made.critic))
        made.offload("critic")
        with pytest.raises(AssertionError, match="off the device already"):
            made.offload("critic")
        made.reload("critic")
        assert all(buffer.grad_data.abs().max() == 0 for buffer in offload._buffers(made.critic))


@pytest.mark.parametrize("which", [0, -1])
def test_one_changed_bit_of_what_was_away_is_caught(actor_path, which):
    with trainer(actor_path) as made:
        made.train_batch(make_batch(), **STEP)
        made.offload("critic")
        _, host = made._away["critic"].stored[which]
        host[len(host) // 2] ^= 1
        with pytest.raises(AssertionError, match="changed while they were off the device"):
            made.reload("critic")


def test_a_trainer_whose_networks_take_turns_trains_as_one_that_holds_both(actor_path, tmp_path, monkeypatch):
    with trainer(actor_path) as made:
        pipelined_steps(made)
        expected = made.checksum(), made.checksum("critic")
    monkeypatch.setattr(offload, "refuse_impossible", lambda: None)  # there is no GPU here
    moves = []
    for name in ("offload", "reload"):
        move = getattr(Trainer, name)
        monkeypatch.setattr(
            Trainer,
            name,
            lambda self, role, name=name, move=move: (moves.append((name, role)), move(self, role)),
        )
    swap_in, swap_out = (
        [("offload", gone), ("reload", here)] for gone, here in (("actor", "critic"), ("critic", "actor"))
    )
    with trainer(actor_path, offload=True) as made:
        assert moves == swap_out[:1] and set(made._away) == {"critic"}
        moves.clear()
        results = pipelined_steps(made)
        assert moves == 2 * (swap_in + swap_out)
        assert all({"offload", "reload", "critic", "actor"} <= set(result.timings_s) for result in results)
        made.save_checkpoint(tmp_path / "checkpoint")
        assert set(made._away) == {"critic"}
        assert (made.checksum(), made.checksum("critic")) == expected
        made.load_checkpoint(tmp_path / "checkpoint")
        assert (made.checksum(), made.checksum("critic")) == expected


def test_on_a_cpu_the_setting_is_refused(actor_path):
    with pytest.raises(ValueError, match=r"train\.offload=true has no effect on a CPU"):
        Trainer(settings(actor_path, offload=True)).setup()


def test_what_a_learner_takes_on_the_host_is_counted_as_it_is_then_moved(actor_path):
    for precision in ("fp32", "bf16"):
        with trainer(actor_path, precision=precision) as made:
            made.train_batch(make_batch(), **STEP)
            moved = sum(len(host) for _, host in offload.offload(made.critic).stored)
            weights = offload._weight_bytes(made.critic)
            # The buffers hold some padding that no parameter uses.
            assert 0.98 * moved <= offload.state_bytes(made.critic) <= moved
            assert offload.state_bytes(made.critic) == weights * (3 if precision == "fp32" else 7)


def test_a_host_without_room_is_refused_with_the_arithmetic():
    # Two learners of 3 and 2 GiB and three snapshots of 1 GiB are 8 GiB a rank, 16 GiB for two ranks.
    demand = OffloadDemand({"actor": 3 * GIB, "critic": 2 * GIB}, snapshot_bytes=GIB, num_snapshots=3)
    check_host_memory(demand, num_ranks=2, available_bytes=16 * GIB)
    with pytest.raises(ValueError) as refused:
        check_host_memory(demand, num_ranks=2, available_bytes=16 * GIB - 1)
    for part in (
        "16.00 GiB of host memory",
        "2 ranks on this host",
        "actor 3.00",
        "critic 2.00",
        "= 8.00 GiB",
    ):
        assert part in str(refused.value)


def test_a_trainer_asks_before_its_first_step_whether_the_host_has_room(actor_path, monkeypatch):
    monkeypatch.setattr(offload, "refuse_impossible", lambda: None)
    monkeypatch.setattr(offload, "available_bytes", lambda: 1000)
    with pytest.raises(ValueError, match=r"train\.offload needs .* GiB of host memory"):
        with trainer(actor_path, offload=True):
            pass


def test_a_control_group_bounds_the_memory_that_is_available(tmp_path):
    machine = available_bytes(tmp_path / "no such group")
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 150\n")
    assert available_bytes(tmp_path) == 1000 - 700 + 150
    (tmp_path / "memory.max").write_text("max\n")
    assert available_bytes(tmp_path) == pytest.approx(machine, rel=0.5)


def test_expandable_segments_and_the_memory_saver_are_refused_together_only():
    saver = {"LD_PRELOAD": "/lib/torch_memory_saver_hook_mode_preload.abi3.so"}
    segments = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:512, Expandable_Segments:True"}
    for fine in ({}, saver, segments, saver | {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:False"}):
        offload.refuse_memory_saver_with_expandable_segments(fine)
    with pytest.raises(ValueError, match="cannot release such memory"):
        offload.refuse_memory_saver_with_expandable_segments(saver | segments)
