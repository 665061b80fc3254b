"""Bugs of clusters: threads of ranks, choices by measured links, the report of links, batch scripts."""

import tempfile
from pathlib import Path

from backends.cli.batch_script import BatchScript
from backends.comm.collectives.costs import Machine
from backends.comm.collectives.link import Link
from backends.launch.ping_pong import Links, Pair
from tests.backends import cluster_laws
from tests.backends.cli import batch_script_laws
from tests.bugs.bug import Bug

FAST, SLOW = Link(1e-6, 1e10), Link(2e-5, 1e8)
TWO_NODES = Machine([0, 0, 0, 0, 1, 1, 1, 1], FAST, SLOW)

# Laws


def ranks_have_the_cores_of_their_host() -> None:
    for launcher in ("MPICH", "Open MPI", "Slurm"):
        for host, here in enumerate((8, 9, 4)):
            cluster_laws.ranks_share_the_cores_of_their_own_host(launcher, (2, 2, 3), host, here)


def ranks_have_one_thread() -> None:
    for ranks in (1, 2, 3):
        cluster_laws.only_the_ranks_of_a_slurm_job_have_more_threads_than_one(ranks, 8)


def costs_are_closed_forms() -> None:
    for p in (2, 4, 8):
        for nbytes in (64, 1 << 22):
            cluster_laws.costs_are_the_closed_forms(p, nbytes, SLOW)
            cluster_laws.the_choice_is_the_least_of_the_formulas(p, nbytes, SLOW)


def choices_are_near_the_best() -> None:
    for nbytes in (800, 80_000, 400_000):
        for machine in (TWO_NODES, Machine([0, 0, 1, 1, 2, 2], FAST, SLOW), Machine(range(5), SLOW, SLOW)):
            cluster_laws.no_algorithm_is_much_faster_than_the_chosen_one(nbytes, machine)


def all_ranks_choose_the_same() -> None:
    cluster = cluster_laws.cluster_of(Machine(range(4), FAST, SLOW))
    cluster.links = {(1, 2): Link(1e-3, 1e6)}  # which only two of them see
    for seed in range(3):
        cluster.jitter, cluster.seed = 1.0, seed
        (choice, *_) = cluster_laws.ranks_measure_choose_and_sum_the_same(cluster, 100)
        assert choice["links"]["between"][1] < 1.1e6, f"the slowest link does not count: {choice}"


def links_are_measured() -> None:
    for link in (Link(1e-5, 1e8), Link(1e-4, 1e9)):
        cluster_laws.a_link_is_measured_as_it_is(link)


def resumed_runs_choose_the_same() -> None:
    cluster_laws.a_resumed_run_chooses_the_same(FAST, SLOW)


def buckets_have_the_best_size() -> None:
    for nbytes in (10_000, 1 << 24):
        cluster_laws.buckets_are_of_the_best_size(nbytes, SLOW, 4)


def slow_pairs_are_pointed_out() -> None:
    pairs = [Pair(0, 1, 1e-6, 1e10, ("memory", "memory")), Pair(0, 2, 1e-5, 1e9, ("eth0", "eth0"))]
    pairs += [Pair(1, 2, 1e-5, 1e8, ("eth0", "eth0")), Pair(0, 3, 1e-5, 1e9, ("eth0", "eth0"))]
    cluster_laws.the_worst_links_stand_first(Links(["a", "a", "b", "c"], [0, 0, 2, 3], pairs))
    memory = [Pair(a, b, 1e-6, 1e10, ("memory", "memory")) for a, b in ((0, 1), (0, 2), (1, 2))]
    cluster_laws.the_worst_links_stand_first(Links(["a", "a", "a", "b"], [0, 0, 0, 3], [*memory, pairs[3]]))


def scripts_ask_for_what_they_are_given() -> None:
    for folder in (None, Path("two words")):
        extra = ["--partition=long", "--comment=two words"]
        script = BatchScript(["train", "a b"], 3, 4, 2, "2:00:00", 90, folder, None, extra)
        batch_script_laws.the_script_asks_for_what_it_was_given(script)


def scripts_requeue_what_can_go_on() -> None:
    for before, writes, ended, status in ((9, 100, True, 0), (20, None, True, 0), (None, 20, False, 1)):
        with tempfile.TemporaryDirectory() as folder:
            law = batch_script_laws.the_script_requeues_what_can_go_on
            law(Path(folder), before, writes, ended, status)


# Bugs


BUGS = [
    Bug("all ranks share one host's cores", "ranks_here", "return tasks[int(node)] if",
        "return sum(tasks) if", ranks_have_the_cores_of_their_host, "ranks with . threads on"),
    Bug("the first host's ranks are those of every host", "ranks_here", "tasks[int(node)]", "tasks[0]",
        ranks_have_the_cores_of_their_host, "3 ranks with 2 threads on 4 cores"),
    Bug("hosts that are repeated count once", "cores.counts", "for _ in range(int(times or 1))",
        "for _ in range(1)", ranks_have_the_cores_of_their_host, "."),
    Bug("a rank has its share of the cores", "default_threads", "1 if slurm.find_job() is None else", "",
        ranks_have_one_thread, "1 ranks on 8 cores have 8 threads, and 8"),
    Bug("a ring sends whole arrays", "costs.ring", "ranks[(k + 1) % p], nbytes / p)",
        "ranks[(k + 1) % p], nbytes)", costs_are_closed_forms, "ring of .* takes"),
    Bug("halves are swapped in one direction", "costs.halving", "(2, nbytes / (2 *", "(1, nbytes / (2 *",
        costs_are_closed_forms, "halving of .* takes"),
    Bug("the dearest all-reduce is taken", "fastest_allreduce", "return min(ROUNDS, key=",
        "return max(ROUNDS, key=", costs_are_closed_forms, "was taken, and"),
    Bug("each rank has a network card", "Machine.seconds", 'else ("card", node, out)',
        'else ("card", end, out)', choices_are_near_the_best, ".* takes .* bytes, "),
    Bug("links between machines are as those inside", "Machine.seconds",
        "self.inside if one == other else self.between", "self.inside", choices_are_near_the_best,
        ".* takes .* bytes, "),
    Bug("each rank believes its own links", "greatest",
        "return max(float(x[0]) for x in allgather(comm, np.array([value])))",
        "allgather(comm, np.array([value]))\n    return value", all_ranks_choose_the_same, "."),
    Bug("the fastest link counts", "automatic.slowest",
        "seconds_of_byte = greatest(comm, 0.0 if link is None else 1 /",
        "seconds_of_byte = greatest(comm, 0.0 if link is None else 1e-12 /", all_ranks_choose_the_same,
        "slowest link does not count"),
    Bug("a round trip counts as one way", "link.one_way", "times.append((comm.time() - start) / 2)",
        "times.append(comm.time() - start)", links_are_measured, "latency"),
    Bug("the latency counts as bandwidth", "link.measure", "max(large - latency, large / 10, 1e-12)",
        "large + 9 * latency", links_are_measured, "B/s"),
    Bug("a resumed run measures again", "AutomaticAllreduce.set_chosen", 'if links := chosen.get("links"):',
        "if links := None:", resumed_runs_choose_the_same, "is not"),
    Bug("latency and bandwidth are swapped in a checkpoint", "AutomaticAllreduce.set_chosen",
        'Link(*links["inside"])', 'Link(*links["inside"][::-1])', resumed_runs_choose_the_same, "."),
    Bug("buckets are of the worst size", "best_bucket_bytes", "count = min(range(1, MOST",
        "count = max(range(1, MOST", buckets_have_the_best_size, "bytes take"),
    Bug("fast pairs stand first", "worst_first", "key=lambda pair: -pair.link", "key=lambda pair: pair.link",
        slow_pairs_are_pointed_out, "the order is"),
    Bug("memory and networks are compared", "worst_first",
        "filter(None, inside_and_between(links))", "[links.pairs]",
        slow_pairs_are_pointed_out, "called slow"),
    Bug("all tasks on one node", "batch_script.TEXT", "--ntasks-per-node={n.tasks}",
        "--ntasks-per-node={n.ranks}", scripts_ask_for_what_they_are_given, "the script asks for"),
    Bug("words of an option come apart", "BatchScript.text", "#SBATCH {shlex.quote(word)}", "#SBATCH {word}",
        scripts_ask_for_what_they_are_given, "the script asks for"),
    Bug("a job that cannot go on is requeued for ever", "batch_script.RUN", 'if [ "$(newest)" = "$before" ]',
        "if false", scripts_requeue_what_can_go_on, "requeued: True"),
    Bug("a job that failed is requeued", "batch_script.RUN", 'if [ -n "$ending" ] && [ "$status" -ne 0 ]',
        'if [ "$status" -ne 0 ]', scripts_requeue_what_can_go_on, "requeued: True"),
    Bug("the oldest checkpoint counts", "batch_script.RUN", "sort -V | tail -n 1", "head -n 1",
        scripts_requeue_what_can_go_on, "requeued: False"),
    Bug("the signal ends the script alone", "batch_script.RUN", '|| kill -TERM "$training"',
        '|| kill -0 "$training"', scripts_requeue_what_can_go_on, "."),
]  # fmt: skip
