"""Batches hold every document once, keep the token budget, and depend on lengths alone."""

from hypothesis import given
from hypothesis import strategies as st

from datamask_pipeline.embedding.batching import compose_batches


@given(st.lists(st.integers(1, 512), max_size=200), st.integers(64, 4096))
def test_every_document_is_in_one_batch_within_the_budget(lengths: list[int], budget: int) -> None:
    batches = compose_batches(lengths, budget)
    assert sorted(index for batch in batches for index in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = len(batch) * max(lengths[index] for index in batch)
        assert padded <= budget or len(batch) == 1


def test_documents_of_like_length_share_a_batch() -> None:
    assert compose_batches([10, 100, 11, 99], 200) == [[1, 3], [2, 0]]
    assert compose_batches([], 64) == []
