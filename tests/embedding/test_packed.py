"""Packed linear layers give what torch's own give, and keep the parameters' names."""

import platform

import pytest
import torch

from datamask_pipeline.embedding import packed
from datamask_pipeline.products import packable


def network(dtype: torch.dtype, bias: bool = True) -> torch.nn.Module:
    torch.manual_seed(0)
    layers = torch.nn.Linear(48, 96, bias=bias), torch.nn.GELU(), torch.nn.Linear(96, 32, bias=bias)
    return torch.nn.Sequential(*layers).eval().requires_grad_(False).to(dtype)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize("bias", [True, False])
def test_the_products_are_the_same(dtype: torch.dtype, tolerance: float, bias: bool) -> None:
    model, inputs = network(dtype, bias), torch.randn(3, 7, 48).to(dtype)
    expected, names = model(inputs), list(model.state_dict())
    packed.pack_linears(model)
    found = model(inputs)
    assert found.dtype == dtype
    assert found.shape == expected.shape
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
    assert list(model.state_dict()) == names


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_the_exact_gelu_joins_its_product(dtype: torch.dtype, tolerance: float) -> None:
    from transformers import BertConfig
    from transformers.models.bert.modeling_bert import BertIntermediate

    torch.manual_seed(0)
    inputs = 3 * torch.randn(5, 64).to(dtype)
    for activation, joins in (("gelu", True), ("gelu_new", False), ("relu", False)):
        config = BertConfig(hidden_size=64, intermediate_size=256, hidden_act=activation)
        layer = BertIntermediate(config).eval().requires_grad_(False).to(dtype)
        expected = layer(inputs)
        packed.pack_linears(layer)
        packed.pack_linears(layer)
        torch.testing.assert_close(layer(inputs), expected, atol=tolerance, rtol=tolerance)
        is_packed = isinstance(layer.dense, packed.PackedLinear)
        assert isinstance(layer.intermediate_act_fn, torch.nn.Identity) == (joins and is_packed)


def test_layers_are_left_alone_where_they_cannot_be_packed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    model = network(torch.float32)
    packed.pack_linears(model)
    assert isinstance(model[0], torch.nn.Linear)


def test_layers_are_packed_where_they_can_be() -> None:
    model = network(torch.float32)
    can = packable(model[0].weight.dtype, model[0].weight.device)
    packed.pack_linears(model)
    assert isinstance(model[0], packed.PackedLinear) == can
