"""Assignment a5: each mistake costs what it should, in plain words."""

from types import SimpleNamespace

import pytest
from minigrad_course.grading import find_assignment

from tests.assignments.submissions import JUNK, costs, faults, submission

A5 = find_assignment("a5")
ALL = {task.name for task in A5.tasks}


@pytest.mark.parametrize("junk", JUNK, ids=repr)
def test_junk_is_refused_in_words(junk):
    """Also where all messages are right: what is returned in the end is looked at."""
    right = submission("solved_a5.py")

    def returning_junk(name):
        def called(*arguments):
            getattr(right, name)(*arguments)
            return junk

        return called

    actual = faults(A5, SimpleNamespace(**{name: returning_junk(name) for name in ALL}), few=ALL)
    assert set(actual) == ALL and all("returned" in words for words in actual.values()), actual


SERVING = {"serve", "serve_bounded", "train"}
HOLDING = {"serve_bounded", "train"}
MISTAKES = {
    "gives the remainder to the last server": (
        [
            (
                "slice(elements * s // servers, elements * (s + 1) // servers)",
                "slice(elements // servers * s, "
                "elements // servers * (s + 1) if s < servers - 1 else elements)",
            )
        ],
        {"cut"},
        "server 1 holds slice(1, 2, None), it should be slice(1, 3, None)",
    ),
    "never looks at the answer's version": (
        [("            versions[s] = answer[0]\n", "")],
        {"work"},
        "worker 0's push number 2 to server 0 names version 0; the last answer was of version 1",
    ),
    "names one version for all servers": (
        [("[[versions[s]], g[parts[s]]]", "[[versions[0]], g[parts[s]]]")],
        {"work"},
        "push number 2 to server 1 names version 1; the last answer was of version 4",
    ),
    "sends the whole gradient to every server": (
        [("g[parts[s]]", "g")],
        {"work", "train"},
        "it should be float64 of shape (2,): the version, and 1 element of the gradient",
    ),
    "waits for the end to be answered": (
        [
            (
                "comm.send(np.empty(0), workers + s)",
                "comm.send(np.empty(0), workers + s); comm.recv(workers + s)",
            )
        ],
        {"work", "train"},
        "deadlock",
    ),
    "works in its input": (
        [("x, versions = parameters.copy()", "x, versions = parameters")],
        {"work"},
        "worker 0's result is the input's memory",
    ),
    "counts staleness after the update": (
        [
            ("            version += 1\n", ""),
            ("            age =", "            version += 1\n            age ="),
        ],
        {"serve", "serve_bounded"},
        "1 worker of 1 step, 1 server, 2 elements: server 0 counted staleness {1: 1}, it was {0: 1}",
    ),
    "receives from the workers in turn": (
        [
            (
                "        worker, message = comm.recv_any()\n",
                "        worker = sorted(clocks)[turn % len(clocks)]\n        turn += 1\n"
                "        message = comm.recv(worker)\n",
            ),
            ("clocks, waiting =", "turn, clocks, waiting = 0,"),
        ],
        SERVING,
        "server 0 waits for rank 0 alone, while worker 1 may come first",
    ),
    "answers one step too late": (
        [("<= bound", "< bound")],
        HOLDING,
        "which is 0 ahead of the slowest that has not ended; the bound is 0",
    ),
    "lets workers run one step too far": (
        [("<= bound", "<= bound + 1")],
        HOLDING,
        "which is 1 ahead of the slowest that has not ended; the bound is 0",
    ),
    "never bounds anything": (
        [
            (
                "rate, bound):\n    return loop(comm, workers, part, rate, bound)",
                "rate, bound):\n    return loop(comm, workers, part, rate, np.inf)",
            )
        ],
        HOLDING,
        "ahead of the slowest",
    ),
    "waits for those that have ended": (
        [
            ("            del clocks[worker]\n", "            ended.add(worker)\n"),
            ("    while clocks:", "    ended = set()\n    while len(ended) < workers:"),
        ],
        HOLDING,
        "has not answered worker",
    ),
    "answers who waited with what was there when it pushed": (
        [
            (
                "waiting.append(worker)",
                "since = {**since, worker: version + 1}\n            waiting.append(worker)",
            ),
            ("clocks, waiting =", "since, clocks, waiting = {},"),
            ("[[version], part]), w)", "[[since[w]], part]), w)"),
        ],
        {"serve_bounded", "train"},
        "is of version 1, but it had received 2 gradients",
    ),
    "looks who may go on only when a gradient comes": (
        [("            del clocks[worker]\n", "            del clocks[worker]\n            continue\n")],
        HOLDING,
        "has not answered worker",
    ),
    "answers with the parameters before the update": (
        [
            ("            part -= rate * message[1:]\n", ""),
            ("    return part, staleness", "    return part, staleness  # never"),
            (
                "comm.send(np.concatenate([[version], part]), w)\n",
                "comm.send(np.concatenate([[version], part]), w)\n"
                "        if message.size:\n            part -= rate * message[1:]\n",
            ),
        ],
        SERVING,
        "server 0's answer to worker 0 holds",
    ),
    "the last parts go by the pushes' tag": (
        [("start_send(mine, r, tag=9)", "start_send(mine, r)"), ("comm.recv(r, tag=9)", "comm.recv(r)")],
        {"train"},
        "give such messages a tag of their own",
    ),
    "the servers send one another before they receive": (
        [
            ("[comm.start_send(mine, r, tag=9) for", "[comm.send(mine, r, tag=9) for"),
            ("    for finish in finishes:\n        finish()\n", ""),
        ],
        {"train"},
        "deadlock",
    ),
    "a worker returns what it saw last": (
        [
            (
                "        work(comm, workers, parameters, steps, gradient)\n",
                "        result = work(comm, workers, parameters, steps, gradient)\n",
            ),
            ("    return np.concatenate(parts)", "    return np.concatenate(parts) if finishes else result"),
        ],
        {"train"},
        "the start less the rate times the sum of all gradients",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_costs_its_tasks_and_no_other(mistake):
    costs(A5, *MISTAKES[mistake])
