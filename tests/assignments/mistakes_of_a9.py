"""The usual mistakes in lessons/assignments/a9_checkpoint, each with what the grader says of it."""

from minigrad_course.grading import find_assignment

A9 = find_assignment("a9")
TASKS = {task.name: task for task in A9.tasks}
ALL = set(TASKS)
SAVING = ALL - {"seal"}
CRCS = "    sums = [int(x[0]) for x in allgather(comm, np.array([crc32(data)]))]\n"
WRITES = "    disk.write(mine, data)\n    disk.sync(mine)\n"
COMMIT = '        disk.rename("/new", head)\n        disk.sync("/")\n'
FILES = 'files = [disk.read(f"/shard-{step}-{rank}") for rank in range(len(head["sums"]))]'
VERIFIES = (
    '    if head["step"] != step or [crc32(data) for data in files] != head["sums"]:\n        return None\n'
)
MISTAKES = {
    "shards are not synced": (
        [("    disk.sync(mine)\n", "")],
        {"power"},
        "the power fails after the save of step 9: load gives nothing, it should give step 9",
    ),
    "the head is not synced": (
        [('        disk.sync("/new")\n', "")],
        {"power"},
        "the power fails after the save of step 9",
    ),
    "the names are not synced": (
        [
            (COMMIT, '        disk.rename("/new", head)\n'),
            ('    disk.sync("/")\n    for name', "    for name"),
        ],
        {"power"},
        "it should give step 9",
    ),
    "shards are written after the commit, and read as if they were there": (
        [
            (WRITES, ""),
            (
                "        remove_old(disk)\n    barrier(comm)\n",
                f"        remove_old(disk)\n{WRITES}    barrier(comm)\n",
            ),
            (VERIFIES, ""),
        ],
        SAVING - {"save_and_load"},
        "of step 9 load gives 0 shards, it should be 1",
    ),
    "one rank commits before the others have written": (
        [
            (WRITES, ""),
            (
                CRCS,
                CRCS + "    if comm.rank == 0:\n        disk.write(mine, data)\n        disk.sync(mine)\n",
            ),
            (
                "        remove_old(disk)\n    barrier(comm)\n",
                "        remove_old(disk)\n    else:\n        disk.write(mine, data)\n"
                "        disk.sync(mine)\n    barrier(comm)\n",
            ),
        ],
        {"power"},
        "2 ranks",
    ),
    "the old generation goes before the new one is there": (
        [(COMMIT, '        for old in steps_on(disk):\n            disk.remove(f"/head-{old}")\n' + COMMIT)],
        {"kill", "power", "damage"},
        "of the save: load gives nothing, it should give step 9 or step 10",
    ),
    "shards of all steps have one name": (
        [
            ('mine = f"/shard-{step}-{comm.rank}"', 'mine = f"/shard-0-{comm.rank}"'),
            ("    steps = steps_on(disk)\n", "    steps = [*steps_on(disk)[:1], 0]\n"),
            ("    for old in steps[2:]:", "    for old in steps_on(disk)[2:]:"),
            ('f"/shard-{step}-{rank}"', 'f"/shard-0-{rank}"'),
        ],
        {"kill", "power", "damage"},
        "load gives nothing, it should give step 9 or step 10",
    ),
    "no checksum of shards in the head": (
        [('head["step"] != step or [crc32(data) for data in files] != head["sums"]', 'head["step"] != step')],
        {"damage"},
        "of step 9 load gives 0 shards, it should be 1",
    ),
    "a shard of another generation is taken": (
        [
            (
                VERIFIES,
                '    if head["step"] != step:\n        return None\n'
                '    if not all((unseal(x) or b"").startswith(b"s") for x in files):\n        return None\n',
            )
        ],
        {"damage"},
        "of step 9 load gives for rank 1 b'\\x90', it should be b'\\x91'",
    ),
    "every file of the step is loaded": (
        [
            (
                FILES,
                'files = [disk.read(f"/{n}") for n in disk.names("/") if n.startswith(f"shard-{step}-")]',
            ),
            (VERIFIES, '    if head["step"] != step or None in map(unseal, files):\n        return None\n'),
        ],
        {"kill", "power", "damage"},
        "shard",
    ),
    "a damaged head ends the program": (
        [("        if head is None:\n            return None\n", "")],
        {"damage"},
        "load raises TypeError",
    ),
    "only the newest is tried": (
        [("    for step in steps_on(disk):\n", "    for step in steps_on(disk)[:1]:\n")],
        {"power", "damage"},
        "load gives nothing, it should give step 9 or step 10",
    ),
    "steps are sorted as texts": (
        [
            (
                'sorted((int(n[5:]) for n in disk.names("/") if n.startswith("head-")), reverse=True)',
                '[int(t) for t in sorted((n[5:] for n in disk.names("/") if n.startswith("head-")), '
                "reverse=True)]",
            )
        ],
        SAVING,
        "load gives step 9, it should give step 10",
    ),
    "nothing is ever removed": (
        [("        remove_old(disk)\n", "")],
        {"save_and_load", "kill"},
        "two generations stay, and older ones go",
    ),
    "one generation stays": (
        [("in steps[2:]", "in steps[1:]"), ("not in steps[:2]", "not in steps[:1]")],
        {"damage"},
        "is missing: load gives nothing, it should give step 9 or step 10",
    ),
    "zeros are a file": (
        [('START = b"checkpoint"', 'START = b""')],
        {"seal"},
        "4 bytes of zero: unseal gives b'', it should be None",
    ),
    "a length instead of a checksum": (
        [("crc32(body).to_bytes(4", "len(body).to_bytes(4"), ("crc32(body) != int", "len(body) != int")],
        {"seal", "damage"},
        "one bit of byte 14 is flipped: unseal gives",
    ),
    "unseal raises for what is too short": (
        [("    if len(data) < 4 or crc32(body)", "    data[3]\n    if crc32(body)")],
        {"seal", "damage"},
        "IndexError",
    ),
}
