"""Your own answers, which must score all points."""


def center(x):
    return x - x.mean()


def mean_over_ranks(comm, x):
    if comm.rank > 0:
        comm.send(x, 0)
        return comm.recv(0)
    total = x.copy()
    for source in range(1, comm.size):
        total += comm.recv(source)
    mean = total / comm.size
    for rank in range(1, comm.size):
        comm.send(mean, rank)
    return mean
