"""Linear layers whose weights are laid out for oneDNN once, at loading. Knows no model.

torch sends float32 products to MKL, which reaches less than half of an AMD processor's arithmetic, and lays
bfloat16 weights out anew in every call. The operator is the one that torch's own compiler generates.
"""

import torch

from datamask_pipeline.products import packable


class PackedLinear(torch.nn.Module):
    """A linear layer for inference on x86; its parameters keep their names.

    Args:
        linear: The layer it stands for.

    Attributes:
        activation: Applied to the product: ``none`` or ``gelu``, the exact one.
    """

    def __init__(self, linear: torch.nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias
        self.activation = "none"
        self._packed = torch.ops.mkldnn._reorder_linear_weight(linear.weight.detach())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = torch.ops.mkldnn._linear_pointwise(
            inputs, self._packed, self.bias, self.activation, [], "none"
        )
        return outputs


def pack_linears(module: torch.nn.Module) -> None:
    """Replace every linear layer inside a frozen module, where this processor and build of torch can; once is enough."""
    from transformers.activations import GELUActivation

    for name, child in list(module.named_children()):
        if isinstance(child, torch.nn.Linear) and packable(child.weight.dtype, child.weight.device):
            setattr(module, name, PackedLinear(child))
        else:
            pack_linears(child)
    # In BERT and its kin the exact GELU joins the product that it follows.
    dense = getattr(module, "dense", None)
    if (
        isinstance(dense, PackedLinear)
        and type(getattr(module, "intermediate_act_fn", None)) is GELUActivation
    ):
        dense.activation = "gelu"
        module.intermediate_act_fn = torch.nn.Identity()
