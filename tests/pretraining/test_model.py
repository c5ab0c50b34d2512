import torch

from datamask_pipeline.pretraining.config import PretrainConfig
from datamask_pipeline.pretraining.model import build_model, count_parameters


def _weights(config: PretrainConfig) -> torch.Tensor:
    model = build_model(config, vocab_size=300, end_of_text=0)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def test_weights_come_from_the_seed_alone(config: PretrainConfig) -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    first = _weights(config)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(6)
    assert torch.equal(_weights(config), first)
    assert not torch.equal(_weights(config.model_copy(update={"seed": 1})), first)


def test_sizes_are_those_of_the_configuration(config: PretrainConfig) -> None:
    def size(**changes: object) -> int:
        return count_parameters(build_model(config.model_copy(update=changes), vocab_size=300, end_of_text=0))

    hidden, intermediate, layers = config.hidden_size, config.intermediate_size, config.num_layers
    block = 4 * hidden**2 + 3 * hidden * intermediate + 2 * hidden
    assert size() == 300 * hidden + layers * block + hidden
    experts = 4 * 3 * hidden * intermediate + 4 * hidden
    moe_block = 4 * hidden**2 + experts + 2 * hidden
    assert size(architecture="moe") == 300 * hidden + layers * moe_block + hidden
    assert size(num_layers=3) == size() + block
    assert size(tie_embeddings=False) == size() + 300 * hidden
    for architecture in ("dense", "moe"):
        known = config.model_copy(update={"architecture": architecture}).block_parameters
        assert size(architecture=architecture) == 300 * hidden + known
    assert size(architecture="moe", num_experts=5) > size(architecture="moe")


def test_experts_are_routed(config: PretrainConfig) -> None:
    ids = torch.arange(16)[None]
    outputs = []
    for experts_per_token in (2, 3):
        moe = config.model_copy(update={"architecture": "moe", "experts_per_token": experts_per_token})
        model = build_model(moe, vocab_size=300, end_of_text=0).eval()
        outputs.append(model(input_ids=ids).logits)
    assert not torch.equal(*outputs)
