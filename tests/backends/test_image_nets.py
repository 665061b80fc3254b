"""Laws of backends/laws.py, backends/data_parallel/, backends/model_parallel/ and backends/pipeline/:
decoders, and nets of signals, are trained by every strategy as by one machine, or refused in one line.
"""

import numpy as np
import pytest

from backends.comm import run_ranks
from backends.data_parallel import Bucketed, DataParallel, NaiveDataParallel, Sharded
from backends.model_parallel.model_parallel import ModelParallel
from backends.model_parallel.plan import default_plan
from backends.pipeline import Pipeline
from tests.backends.image_net_laws import NETS, train_like_serial
from tests.nets import decoder, of_signals

PLANS = {
    "filters": {"0": "filters", "6": "filters", "14": "row"},
    "channels": {"6": "channels"},
    "rows": {"6": "rows"},
    "default": None,
}


@pytest.mark.parametrize("strategy", [NaiveDataParallel, Bucketed, lambda comm: Sharded(comm, stage=3)])
def test_samples_are_normalised_by_themselves_so_data_parallelism_is_exact(strategy):
    train_like_serial(strategy, ranks=3, sizes=(5, 2))


@pytest.mark.parametrize("plan", PLANS.values(), ids=list(PLANS))
@pytest.mark.parametrize("ranks", [2, 3])
def test_split_layers_stand_beside_layers_that_cannot_be_split(plan, ranks):
    train_like_serial(lambda comm: ModelParallel(comm, plan, sample=NETS[decoder]), ranks=ranks)


def test_a_pipeline_passes_larger_images_on():
    train_like_serial(lambda comm: Pipeline(comm, "1f1b", micro_batches=2))


def test_signals_are_split_and_shared():
    train_like_serial(lambda comm: DataParallel(comm, batch_norm="synchronized"), of_signals, sizes=(5, 4))
    train_like_serial(lambda comm: ModelParallel(comm, sample=NETS[of_signals]), of_signals)
    assert default_plan(of_signals(np.random.default_rng(0)), 2, 2, NETS[of_signals]) != {}


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"0": "rows"}, r"layer 0, .*\(1, 1\) more rows and columns.*padding same.*leave it out of the plan"),
        ({"3": "rows"}, r"layer 3, .*\(1, 1\) more rows.*ceil_mode.*leave it out of the plan"),
        ({"8": "rows"}, "layer 8, .*count_include_pad=False; leave it out of the plan"),
        ({"1": "rows"}, r"layer 1, GroupNorm\(2, 4\), cannot be split by 'rows'; leave it out of the plan"),
        (
            {"4": "filters"},
            "layer 4, ConvTranspose2d.*cannot be split by 'filters'; leave it out of the plan",
        ),
    ],
)
def test_a_split_that_would_be_wrong_is_refused(plan, message):
    with pytest.raises(ValueError, match=message) as refused:
        run_ranks(
            2,
            lambda comm: ModelParallel(comm, plan, sample=NETS[decoder]).place(
                decoder(np.random.default_rng(0))
            ),
        )
    assert "\n" not in str(refused.value)
