"""Laws of backends/cli/batch_script.py: scripts run in a shell with stand-ins for minigrad and scontrol."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import time
from pathlib import Path

from backends.cli.batch_script import BatchScript

SECONDS = 20  # that a script may take

# It writes a checkpoint where CHECKPOINTS says so, and ends when it is asked to.
TRAINING = """#!/bin/bash
echo "$@" >> {folder}/calls
trap 'exit 143' TERM
[ -z "$WRITES" ] || mkdir -p {folder}/kept/step-$WRITES
touch {folder}/begun
for _ in $(seq 100); do [ -e {folder}/finish ] && exit "$STATUS"; sleep 0.05; done
exit 9
"""
SCONTROL = '#!/bin/bash\necho "$@" >> {folder}/requeued\n'


def directives(text: str) -> dict[str, str]:
    """The options of sbatch that a script has."""
    options = [
        shlex.split(line.removeprefix("#SBATCH "))[0] for line in text.splitlines() if "#SBATCH" in line
    ]
    return {name: value for name, _, value in (option.partition("=") for option in options)}


def the_script_asks_for_what_it_was_given(script: BatchScript) -> None:
    text = script.text("by srun")
    values = directives(text)
    expected = {
        "--nodes": str(script.nodes),
        "--ntasks-per-node": str(script.tasks),
        "--cpus-per-task": str(script.cpus),
    }
    expected |= {} if script.time is None else {"--time": script.time}
    expected |= {name: value for name, _, value in (option.partition("=") for option in script.extra or ())}
    again = script.checkpoint is not None
    expected |= {"--requeue": "", "--signal": f"B:TERM@{script.notice}"} if again else {"--no-requeue": ""}
    missing = {name: value for name, value in expected.items() if values.get(name) != value}
    assert not missing, f"the script asks for {values}, not for {missing}"
    assert again or "--signal" not in values
    assert subprocess.run(["bash", "-n"], input=text, encoding="utf-8").returncode == 0, text
    (line,) = re.findall(r"^(?:exec )?(minigrad .*?)(?: \"\$\{resume\[@\]\}\" &)?$", text, re.MULTILINE)
    assert shlex.split(line) == ["minigrad", *script.words], f"the command is {line}"


def the_script_requeues_what_can_go_on(
    folder: Path, before: int | None, writes: int | None, ended: bool, status: int
) -> None:
    """A job goes back into the queue where it was ended and has a newer checkpoint; else its status stays.

    ``before`` and ``writes`` are the steps of checkpoints before the job and in it, ``status`` is the
    training's own where nothing ends it.
    """
    tools = folder / "tools"
    tools.mkdir()
    for name, text in (("minigrad", TRAINING), ("scontrol", SCONTROL)):
        (tools / name).write_text(text.format(folder=folder), encoding="utf-8")
        (tools / name).chmod(0o755)
    if before is not None:
        (folder / f"kept/step-{before:08}").mkdir(parents=True)
    script = BatchScript(["train"], time="10", checkpoint=Path("kept"))
    text = re.sub(r"^(\. .*/activate|export PATH=.*)$", "", script.text("by srun"), flags=re.MULTILINE)
    variables = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}
    variables |= {"WRITES": "" if writes is None else f"{writes:08}", "STATUS": str(status)}
    process = subprocess.Popen(["bash", "-c", text], cwd=folder, env=variables, stderr=subprocess.DEVNULL)
    end = time.monotonic() + SECONDS
    while not (folder / "begun").exists():
        assert time.monotonic() < end and process.poll() is None, "the script has not begun to train"
        time.sleep(0.01)
    if ended:
        process.send_signal(signal.SIGTERM)
    else:
        (folder / "finish").touch()
    result = process.wait(SECONDS)
    arguments = (folder / "calls").read_text(encoding="utf-8").strip()
    assert arguments == ("train" if before is None else "train --resume kept"), f"it called {arguments}"
    newer = writes is not None and (before is None or writes > before)
    requeued = (folder / "requeued").exists()
    assert requeued == (ended and newer), f"requeued: {requeued}, ended: {ended}, a newer checkpoint: {newer}"
    assert not requeued or (folder / "requeued").read_text(encoding="utf-8") == "requeue 7\n"
    assert result == (143 if ended else status), f"the script's status is {result}"
