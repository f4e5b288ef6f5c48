"""The fast digest: worked by hand, blind to where a tensor lies, and awake to every bit."""

import hashlib

import torch

from t1core.model import checksum
from t1core.model.checksum import fast_digest


def test_the_sum_of_three_words_and_a_rest_by_hand():
    # Words 5, 7 and 11 and the bytes 1, 2 as the word 0x0201 = 513: 5 * 1 + 7 * 3 + 11 * 5 + 513 * 7 = 3672.
    raw = torch.cat([torch.tensor([5, 7, 11]).view(torch.uint8), torch.tensor([1, 2], dtype=torch.uint8)])
    expected = hashlib.blake2b(b"x torch.uint8 (26,) 3672\n", digest_size=16).hexdigest()
    assert fast_digest({"x": raw}) == expected


def test_words_summed_in_parts_have_the_sum_of_the_whole(monkeypatch):
    words = torch.randint(-(2**62), 2**62, (1000,))
    whole = fast_digest({"x": words})
    monkeypatch.setattr(checksum, "_WORDS_AT_ONCE", 96)
    assert fast_digest({"x": words}) == whole


def test_every_bit_name_type_and_shape_matters_and_the_order_of_a_mapping_does_not():
    torch.manual_seed(0)
    tensors = {"a": torch.randn(33, dtype=torch.bfloat16), "b": torch.randn(5, 7)}
    digest = fast_digest(tensors)
    assert fast_digest(dict(reversed(tensors.items()))) == digest
    for name, tensor in tensors.items():
        for place in (0, tensor.numel() // 2, tensor.numel() - 1):
            for bit in (0, 7):
                changed = tensor.clone()
                changed.view(-1).view(torch.uint8)[place * tensor.element_size()] ^= 1 << bit
                assert fast_digest(tensors | {name: changed}) != digest
    assert fast_digest({"c": tensors["a"], "b": tensors["b"]}) != digest
    assert fast_digest(tensors | {"a": tensors["a"].view(torch.float16)}) != digest
    assert fast_digest(tensors | {"b": tensors["b"].view(7, 5)}) != digest


def test_a_view_off_the_grid_of_words_and_a_swap_of_two_words_are_seen():
    whole = torch.arange(20, dtype=torch.int32)
    assert fast_digest({"x": whole[1:]}) == fast_digest({"x": whole[1:].clone()})
    assert fast_digest({"x": whole[1:]}) != fast_digest({"x": whole[:-1]})
    assert fast_digest({"x": torch.tensor([1, 2])}) != fast_digest({"x": torch.tensor([2, 1])})
    assert fast_digest({"x": torch.empty(0)}) == fast_digest({"x": torch.empty(0)})


def test_the_fast_digest_reads_a_tensor_only_when_it_was_waited_for():
    filled = {"b": torch.arange(9.0), "a": torch.arange(7.0), "c": torch.ones(3)}
    late = {name: torch.zeros_like(tensor) for name, tensor in filled.items()}
    names = {tensor.data_ptr(): name for name, tensor in late.items()}
    order = []

    def arrive(tensor):
        order.append(names[tensor.data_ptr()])
        tensor.copy_(filled[order[-1]])

    assert fast_digest(late, before=arrive) == fast_digest(filled)
    assert order == ["a", "b", "c"]
