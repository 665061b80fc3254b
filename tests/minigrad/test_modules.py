"""Laws of minigrad/module.py, minigrad/nn/linear.py and minigrad/nn/init.py: names,
state and conversion of modules.
"""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from minigrad import Parameter, Tape, nn, ops
from minigrad.testing import DEVICE, on_device


def net(seed=0, **kind):
    rng = np.random.default_rng(seed)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, rng=rng, **kind), nn.BatchNorm(4, **kind), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(36, 3, rng=rng, **kind),
    ).to(device=DEVICE)  # fmt: skip


class Block(nn.Module):
    """A module with a parameter, a list of modules and a child."""

    def __init__(self):
        rng = np.random.default_rng(0)
        self.scale = Parameter(np.ones(2))
        self.towers = [nn.Linear(2, 2, rng=rng, bias=False), nn.LayerNorm(2)]
        self.last = nn.Sequential(nn.Tanh(), nn.Linear(2, 1, rng=rng))
        self.depth = 3


NAMES = ["0.weight", "0.bias", "1.weight", "1.bias", "5.weight", "5.bias"]


def test_parameters_are_named_by_position_in_a_sequence():
    assert list(net().named_parameters().keys()) == NAMES


def test_parameters_are_named_by_attribute_elsewhere_and_by_place_in_lists():
    assert list(Block().named_parameters().keys()) == [
        "scale", "towers.0.weight", "towers.1.weight", "towers.1.bias", "last.1.weight", "last.1.bias",
    ]  # fmt: skip


def test_state_holds_the_running_statistics_too():
    assert set(net().state_dict()) == {*NAMES, "1.running_mean", "1.running_var"}


def test_state_goes_round():
    first, second = net(0), net(1)
    arrays = {name: p.data for name, p in second.named_parameters().items()}
    x = on_device(np.random.default_rng(2).normal(size=(2, 1, 8, 8)).astype(np.float32))
    with Tape():
        first(x)  # moves the running statistics
    second.load_state_dict(first.state_dict())
    assert np.array_equal(first(x).numpy(), second(x).numpy())
    assert all(p.data is arrays[name] for name, p in second.named_parameters().items())


def test_a_state_is_a_copy():
    model = net()
    state = model.state_dict()
    for value in state.values():
        value += 1
    assert not any(np.array_equal(value, state[name]) for name, value in model.state_dict().items())


BROKEN = {
    "missing": (lambda state, name: state.pop(name), KeyError, "lacks {name};.*different model"),
    "unknown": (lambda state, name: state.update(extra=np.zeros(1)), KeyError, "no extra"),
    "of another shape": (
        lambda state, name: state.update({name: np.zeros((3, 35))}),
        ValueError,
        r"{name} has shape .*, the state \(3, 35\)",
    ),
    "text": (
        lambda state, name: state.update({name: np.full(state[name].shape, "1")}),
        ValueError,
        "{name}.*<U1",
    ),
    "objects": (
        lambda state, name: state.update({name: np.full(state[name].shape, None)}),
        ValueError,
        "{name}.*not object",
    ),
    "complex": (lambda state, name: state.update({name: state[name] * 1j}), ValueError, "{name}.*complex"),
    "too large": (
        lambda state, name: state.update({name: np.full(state[name].shape, 1e300)}),
        ValueError,
        "{name} has dtype float32, which cannot hold",
    ),
    "ragged": (
        lambda state, name: state.update({name: [[1.0], [1.0, 2.0]]}),
        ValueError,
        "{name} is no array of numbers",
    ),
}


@pytest.mark.parametrize("how", BROKEN)
@given(data=st.data())
def test_a_state_that_does_not_fit_leaves_the_model_unchanged(how, data):
    """All or nothing, whichever entry it is and wherever it stands."""
    spoil, kind, words = BROKEN[how]
    model, state = net(0), net(1).state_dict()
    before = model.state_dict()
    name = data.draw(st.sampled_from(sorted(state)))
    spoil(state, name)
    state = {name: state[name] for name in data.draw(st.permutations(sorted(state)))}
    with pytest.raises(kind, match=words.format(name=name)):
        model.load_state_dict(state)
    assert all(before[name].tobytes() == value.tobytes() for name, value in model.state_dict().items())


def test_a_state_that_cannot_be_written_leaves_the_model_unchanged():
    model, state = net(0), net(1).state_dict()
    last = model.parameters()[-1]
    last.data = np.broadcast_to(np.float32(np.nan), last.shape)  # as where other ranks hold it
    before = model.state_dict()
    with pytest.raises(ValueError, match="5.bias cannot be written: this rank does not hold it"):
        model.load_state_dict(state)
    assert all(before[name].tobytes() == value.tobytes() for name, value in model.state_dict().items())


def test_a_state_may_be_the_models_own_arrays_in_other_places():
    rng = np.random.default_rng(0)
    first, second = nn.Linear(3, 3, rng=rng), nn.Linear(3, 3, rng=rng)
    model = nn.Sequential(first, second)
    expected = second.weight.numpy().copy(), first.weight.numpy().copy()
    swapped = {"0.weight": second.weight.data, "1.weight": first.weight.data}
    model.load_state_dict(model.state_dict() | swapped)
    assert np.array_equal(first.weight.numpy(), expected[0]) and np.array_equal(
        second.weight.numpy(), expected[1]
    )


@pytest.mark.parametrize("convert", [list, np.float64, np.float32], ids=["lists", "float64", "float32"])
def test_a_state_is_converted_where_no_kind_is_lost(convert):
    model, other = net(0), net(1)
    model.load_state_dict(
        {n: v.tolist() if convert is list else convert(v) for n, v in other.state_dict().items()}
    )
    assert all(np.array_equal(value, other.state_dict()[n]) for n, value in model.state_dict().items())
    assert {value.dtype for value in model.state_dict().values()} == {np.dtype(np.float32)}


def test_to_converts_parameters_and_statistics_and_forgets_gradients():
    model = net()
    for p in model.parameters():
        p.grad = p.data
    assert model.to(dtype=np.float64) is model
    assert {value.dtype for value in model.state_dict().values()} == {np.dtype(np.float64)}
    assert all(p.grad is None for p in model.parameters())


def test_an_unknown_device_is_refused():
    with pytest.raises(ValueError, match="tpu.*numpy, cupy"):
        net().to(device="tpu")


def test_a_tied_parameter_is_listed_once_under_its_first_name():
    rng = np.random.default_rng(0)
    model = nn.Sequential(nn.Linear(3, 3, rng=rng), nn.Tanh(), nn.Linear(3, 3, rng=rng))
    first, last = model[0], model[2]
    assert isinstance(first, nn.Linear) and isinstance(last, nn.Linear)
    last.weight = first.weight
    assert list(model.named_parameters().keys()) == ["0.weight", "0.bias", "2.bias"]
    assert set(model.state_dict()) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    model.to(dtype=np.float64)
    assert last.weight is first.weight


def test_the_same_layer_twice_is_one_set_of_parameters():
    layer = nn.Linear(2, 2, rng=np.random.default_rng(0))
    assert len(nn.Sequential(layer, layer).parameters()) == 2


def test_layers_say_what_they_are():
    assert net().in_one_line() == (
        "Sequential(Conv2d(1, 4, 3), BatchNorm(4), ReLU(), MaxPool2d(2), Flatten(), Linear(36, 3))"
    )


def test_a_model_is_shown_with_the_shapes_and_the_number_of_its_parameters():
    assert repr(Block()).splitlines() == [
        "Block(  # scale (2,)",
        "  (towers.0): Linear(2, 2)  # weight (2, 2)",
        "  (towers.1): LayerNorm(2)  # weight (2,), bias (2,)",
        "  (last): Sequential(",
        "    (0): Tanh()",
        "    (1): Linear(2, 1)  # weight (1, 2), bias (1,)",
        "  )  # 3 parameters",
        ")  # 13 parameters",
    ]


def test_weights_are_drawn_from_the_generator_within_their_bound():
    rng = np.random.default_rng(5)
    first = nn.Linear(16, 8, rng=rng)
    second = nn.Linear(16, 8, rng=np.random.default_rng(5))
    assert np.array_equal(first.weight.numpy(), second.weight.numpy())
    assert not np.array_equal(first.weight.numpy(), nn.Linear(16, 8, rng=rng).weight.numpy())
    assert 0.2 < abs(first.weight.numpy()).max() <= 0.25


def test_an_embedding_looks_rows_up():
    table = nn.Embedding(5, 2, rng=np.random.default_rng(0)).to(device=DEVICE)
    assert isinstance(table, nn.Embedding)
    assert np.array_equal(table(on_device([4, 4])).numpy(), table.weight.numpy()[[4, 4]])


@pytest.mark.parametrize(
    ("layer", "op"),
    [(nn.ReLU, ops.relu), (nn.Sigmoid, ops.sigmoid), (nn.Tanh, ops.tanh), (nn.GELU, ops.gelu),
     (nn.Softmax, ops.softmax), (nn.LeakyReLU, ops.leaky_relu), (nn.SiLU, ops.silu), (nn.ELU, ops.elu),
     (nn.Softplus, ops.softplus), (nn.LogSigmoid, ops.log_sigmoid), (nn.Hardswish, ops.hardswish)],
)  # fmt: skip
def test_layers_without_parameters_are_their_ops(layer, op):
    x = on_device(np.linspace(-2, 2, 12).reshape(3, 4))
    assert np.array_equal(layer()(x).numpy(), op(x).numpy())
    assert layer().parameters() == []


def decoder(rng):
    """Layers that make images larger, and normalise each sample by itself."""
    return nn.Sequential(
        nn.ConvTranspose2d(2, 6, (2, 3), stride=2, padding=(0, 1), output_padding=1, groups=2, rng=rng),
        nn.GroupNorm(2, 6), nn.Upsample(2, mode="bilinear"), nn.Conv2d(6, 4, 2, padding="same", rng=rng),
        nn.InstanceNorm(4, affine=True), nn.MaxPool2d(2, stride=3, ceil_mode=True),
        nn.AdaptiveMaxPool2d((None, 3)), nn.LayerNorm((4, 5, 3)), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        nn.RMSNorm(4),
    )  # fmt: skip


def test_a_decoder_is_the_chain_of_its_ops():
    rng = np.random.default_rng(0)
    model, x = decoder(rng).to(device=DEVICE), on_device(rng.normal(size=(2, 2, 3, 3)).astype(np.float32))
    shapes = []
    for layer in model.children().values():
        x = layer(x)
        shapes.append(x.shape[1:])
    assert shapes == [
        (6, 7, 6), (6, 7, 6), (6, 14, 12), (4, 14, 12), (4, 14, 12), (4, 5, 4), (4, 5, 3), (4, 5, 3),
        (4, 1, 1), (4,), (4,),
    ]  # fmt: skip
    assert x.dtype == np.float32
    assert [repr(layer).partition("  #")[0] for layer in list(model.children().values())[:6]] == [
        "ConvTranspose2d(2, 6, (2, 3), stride=2, padding=(0, 1), output_padding=1, groups=2)",
        "GroupNorm(2, 6)", "Upsample(2, mode=bilinear)", "Conv2d(6, 4, 2, padding=same)",
        "InstanceNorm(4, affine=True)", "MaxPool2d(2)",
    ]  # fmt: skip


def test_convolutions_are_drawn_within_pytorchs_bounds():
    rng = np.random.default_rng(0)
    for layer, fan_in in (
        (nn.Conv1d(8, 64, 4, groups=2, rng=rng), 16),
        (nn.ConvTranspose1d(64, 8, 4, groups=2, rng=rng), 16),
        (nn.ConvTranspose2d(64, 8, 2, groups=2, rng=rng), 16),
    ):
        for p in layer.parameters():
            largest = abs(p.numpy()).max()
            assert 0.8 / fan_in**0.5 < largest <= 1 / fan_in**0.5


RANDOM = {
    "Linear": lambda **rng: nn.Linear(3, 4, **rng),
    "Conv1d": lambda **rng: nn.Conv1d(1, 3, 3, **rng),
    "Conv2d": lambda **rng: nn.Conv2d(1, 3, 3, **rng),
    "ConvTranspose1d": lambda **rng: nn.ConvTranspose1d(1, 3, 3, **rng),
    "ConvTranspose2d": lambda **rng: nn.ConvTranspose2d(1, 3, 3, **rng),
    "Embedding": lambda **rng: nn.Embedding(5, 2, **rng),
    "Dropout": lambda **rng: nn.Dropout(0.5, **rng),
}


@pytest.mark.parametrize("rng", [{}, {"rng": 0.5}, {"rng": None}], ids=str)
@pytest.mark.parametrize("layer", RANDOM)
def test_a_layer_without_a_generator_says_where_to_get_one(layer, rng):
    message = (
        rf"^{layer} needs a generator .* got rng={rng.get('rng')}; write rng = np.random.default_rng\(0\)"
    )
    with pytest.raises(TypeError, match=message):
        RANDOM[layer](**rng)


def test_a_model_forgets_its_gradients():
    model = nn.Sequential(nn.Linear(3, 4, rng=np.random.default_rng(0)).to(device=DEVICE))
    with Tape() as tape:
        loss = model(on_device(np.ones((2, 3)))).sum()
    tape.backward(loss)
    assert all(p.grad is not None for p in model.parameters())
    model.zero_grad()
    assert [p.grad for p in model.parameters()] == [None, None]


def test_an_image_without_its_axes_is_refused_with_the_way_out():
    layer = nn.Conv2d(1, 3, 3, rng=np.random.default_rng(0)).to(device=DEVICE)
    x = on_device(np.ones((4, 28, 28), np.float32))
    with pytest.raises(
        ValueError, match=r"got \(4, 28, 28\) and .*; x\[:, None\] adds the axis of one channel"
    ):
        layer(x)
    assert layer(x[:, None]).shape == (4, 3, 26, 26)


def test_a_seed_is_a_generator_of_its_own():
    layer, other = nn.Linear(3, 2, rng=7), nn.Linear(3, 2, rng=np.random.default_rng(7))
    assert np.array_equal(layer.weight.numpy(), other.weight.numpy())
    assert nn.Dropout(0.5, rng=7).seed == nn.Dropout(0.5, rng=np.random.default_rng(7)).seed
    with pytest.raises(TypeError, match="Linear needs a generator.*got rng='7'; write rng = np.random"):
        nn.Linear(3, 2, rng="7")  # pyright: ignore


def test_named_parameters_are_pairs_and_a_mapping():
    model = net()
    named = model.named_parameters()
    assert [name for name, _ in named] == [*named.keys()] == NAMES
    assert all(p is named[name] for name, p in named) and [p for _, p in named] == model.parameters()
    assert len(named) == len(NAMES) and "0.bias" in named and "0.scale" not in named
    assert dict(named) == named == dict(named.items()) and [*dict(named)] == NAMES
    assert {**named} == named and list(dict(named).values()) == list(named.values())


class ForeignTensor:
    """Numbers on the host, of a type that has CUDA's interface, as PyTorch's tensors."""

    def __init__(self, values):
        self.values = values

    @property
    def __cuda_array_interface__(self):
        raise AttributeError("not on a GPU")

    def __array__(self, dtype=None, copy=None):
        return np.array(self.values, dtype)


def test_a_state_of_pytorch_is_loaded():
    """The state's batch-norms count batches, and its tensors are no NumPy arrays."""
    model, other = net(0), net(1)
    state: dict = {name: ForeignTensor(value) for name, value in other.state_dict().items()}
    model.load_state_dict(state | {"1.num_batches_tracked": ForeignTensor(np.array(7))})
    assert all(np.array_equal(value, other.state_dict()[n]) for n, value in model.state_dict().items())
    with pytest.raises(KeyError, match="the model has no 1.batches_tracked"):
        model.load_state_dict(state | {"1.batches_tracked": np.array(7)})


def test_a_tensor_of_pytorch_that_requires_a_gradient_is_named():
    class Live(ForeignTensor):
        def __array__(self, dtype=None, copy=None):
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy()")

    with pytest.raises(ValueError, match=r"0.weight is no array of numbers in the state: .*detach"):
        net().load_state_dict(net(1).state_dict() | {"0.weight": Live(0)})


def test_a_count_of_batches_that_a_model_has_is_its_state():
    class Counting(nn.Module):
        def __init__(self):
            self.num_batches_tracked = np.array([3])

    model = Counting()
    model.load_state_dict({"num_batches_tracked": np.array([5])})
    assert model.state_dict()["num_batches_tracked"].tolist() == [5]
