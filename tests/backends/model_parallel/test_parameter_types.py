"""Laws of backends/model_parallel/parameter_types.py: in drawn nets and plans no sum over ranks is missing or
doubled, and layers without types are refused.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.comm import run_ranks
from backends.comm.collectives import allreduce
from backends.model_parallel import ModelParallel
from backends.model_parallel.parameter_types import parameter_types
from tests.backends.model_parallel import parameter_type_laws as law
from tests.backends.model_parallel.transformer_laws import FORMS, Net

LINEAR = st.sampled_from(["column", "row", "gathered", None])
LAST = st.sampled_from(["column", "row", "gathered", "classes", None])
CONVOLUTION = st.sampled_from(["filters", "channels", "gathered-filters", None])
PLANS = {
    law.perceptron: ((4,), {"0": LINEAR, "2": LINEAR, "4": LINEAR, "6": LAST}),
    law.images: ((2, 4, 4), {"0": CONVOLUTION, "3": CONVOLUTION, "6": LINEAR, "8": LAST}),
}


@pytest.mark.parametrize("build", PLANS)
@given(data=st.data(), ranks=st.integers(1, 5), whole=st.booleans())
def test_no_plan_misses_a_sum(build, data, ranks, whole):
    shape, kinds = PLANS[build]
    plan = {name: kind for name, kinds_of in kinds.items() if (kind := data.draw(kinds_of)) is not None}
    sample = None if whole else shape
    law.sums_are_right(build, ranks, plan, law.some(*shape), sample=sample, allreduce=allreduce)


@given(
    form=st.sampled_from(sorted(FORMS)),
    ranks=st.integers(1, 4),
    vocabulary=st.booleans(),
    sizes=st.tuples(st.integers(1, 4), st.integers(0, 2), st.integers(1, 5)),
)
def test_no_transformer_misses_a_sum(form, ranks, vocabulary, sizes):
    heads, blocks, tokens = sizes
    net = Net(heads=heads, size=2, blocks=blocks, tokens=tokens)
    law.transformer(form, ranks, vocabulary=vocabulary, net=net)


@pytest.mark.parametrize("case", [law.segments, law.classes, law.gathered_layers])
def test_no_sum_is_missing(case):
    case()


@pytest.mark.parametrize(("plan", "name"), [({"0": "rows"}, "SpatialConv2d"), ({"6": "grid"}, "GridLinear")])
def test_layers_of_two_axes_have_no_types(plan, name):
    def work(comm):
        parameter_types(ModelParallel(comm, plan).place(law.images(np.random.default_rng(0))))

    with pytest.raises(ValueError, match=f"{name}.* has tensors that two axes of ranks share at once"):
        run_ranks(4, work)
