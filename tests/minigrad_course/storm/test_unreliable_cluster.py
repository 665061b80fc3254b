"""Laws of backends/storm/unreliable_cluster.py and fault.py: hosts stop and links are cut at any time."""

from hypothesis import given
from hypothesis import strategies as st
from minigrad_course.storm.fault import Fault

from tests.minigrad_course.storm import cluster_laws as laws

TIMES = st.floats(0.001, 700.0).map(lambda seconds: round(seconds, 3))


def faults(kind):
    return st.builds(Fault, st.just(kind), TIMES, TIMES, st.integers(0, 1), st.integers(0, 9))


@given(at=st.floats(0.001, 5.0).map(lambda seconds: round(seconds, 4)))
def test_a_killed_rank_does_nothing_more(at):
    laws.a_killed_rank_does_nothing_more(at)


@given(sent=TIMES, fault=faults("partition"))
def test_a_message_passes_a_partition_afterwards(sent, fault):
    laws.a_message_passes_a_partition_afterwards(sent, fault)


@given(sent=TIMES, fault=faults("pause"))
def test_a_paused_host_goes_on_afterwards(sent, fault):
    laws.a_paused_host_goes_on_afterwards(sent, fault)
