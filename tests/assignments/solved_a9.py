"""Assignment a9 as a student would solve it by its README: one folder, and a head file that is replaced."""

from json import dumps, loads
from zlib import crc32

import numpy as np

from backends.comm.collectives import allgather, barrier

START = b"checkpoint"


def seal(content):
    body = START + content
    return crc32(body).to_bytes(4, "big") + body


def unseal(data):
    body = data[4:]
    if len(data) < 4 or crc32(body) != int.from_bytes(data[:4], "big") or not body.startswith(START):
        return None
    return body[len(START) :]


def save(comm, disk, step, shard):
    data = seal(b"s" + shard)
    mine = f"/shard-{step}-{comm.rank}"
    disk.write(mine, data)
    disk.sync(mine)
    sums = [int(x[0]) for x in allgather(comm, np.array([crc32(data)]))]
    if comm.rank == 0:
        head = f"/head-{step}"
        disk.write("/new", seal(dumps({"step": step, "sums": sums}).encode()))
        disk.sync("/new")
        disk.rename("/new", head)
        disk.sync("/")
        remove_old(disk)
    barrier(comm)


def remove_old(disk):
    steps = steps_on(disk)
    for old in steps[2:]:
        disk.remove(f"/head-{old}")
    disk.sync("/")
    for name in disk.names("/"):
        if name.startswith("shard-") and int(name.split("-")[1]) not in steps[:2]:
            disk.remove(f"/{name}")


def steps_on(disk):
    return sorted((int(n[5:]) for n in disk.names("/") if n.startswith("head-")), reverse=True)


def read_one(disk, step):
    try:
        head = unseal(disk.read(f"/head-{step}"))
        if head is None:
            return None
        head = loads(head)
        files = [disk.read(f"/shard-{step}-{rank}") for rank in range(len(head["sums"]))]
    except (OSError, ValueError):
        return None
    if head["step"] != step or [crc32(data) for data in files] != head["sums"]:
        return None
    shards = [unseal(data) for data in files]
    return step, [shard[1:] for shard in shards if shard]


def load(disk):
    for step in steps_on(disk):
        result = read_one(disk, step)
        if result is not None:
            return result
    return None
