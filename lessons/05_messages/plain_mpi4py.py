"""Lesson 05, part 7: the collectives of parts 2 to 5 in plain mpi4py, without minigrad.

minigrad run -n 2 lessons/05_messages/plain_mpi4py.py
"""

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
right, left = (rank + 1) % size, (rank - 1) % size

received = np.empty(1)  # part 5: swap; the receiver makes room, of the right length and dtype
comm.Sendrecv(np.array([float(rank)]), dest=right, recvbuf=received, source=left)
assert received == left

w = np.arange(3.0) if rank == 0 else np.empty(3)  # part 2, with the sum of the squares of x w
comm.Bcast(w, root=0)
x = np.random.default_rng(0).normal(size=(101, 3)) if rank == 0 else None
rows = [
    len(share) for share in np.array_split(np.arange(101), size)
]  # MPI must be told: 51 and 50 on two ranks
mine = np.empty((rows[rank], 3))
comm.Scatterv([x, [3 * n for n in rows]], mine, root=0)  # in numbers, not in rows
gradient = 2 * mine.T @ (mine @ w)
gradients = np.empty((size, 3)) if rank == 0 else None
comm.Gather(gradient, gradients, root=0)

total = np.empty(3)  # part 3: every rank gets the sum
request = comm.Iallreduce(gradient, total)
loss = ((mine @ w) ** 2).sum()  # computed while the messages are on their way
request.Wait()
if rank == 0:
    assert np.allclose(total, gradients.sum(axis=0)) and np.allclose(total, 2 * x.T @ (x @ w))

fortran, summed = np.asfortranarray([[0.0, 1, 2], [3, 4, 5]]), np.empty((2, 3))  # part 4: the trap
comm.Allreduce(fortran, summed)
wrong = np.count_nonzero(summed != size * fortran)
print(f"rank {rank} of {size}: loss {loss:.1f} of its rows, gradient of all {total.round(1)};")
print(f"rank {rank} of {size}: a sum in Fortran order: {wrong} of 6 numbers wrong")
assert wrong == 4
