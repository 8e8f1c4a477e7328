"""Starts a command by ssh on each of several hosts: python -m launch.launchers.ssh NUMBER HOST,HOST,… [NAME=VALUE …] COMMAND …

Exit status: 0 where all ended with 0, else that of the first that did not; the others are ended then.
"""

import shlex
import subprocess
import sys
import time

from common.declarations import ROOT

POLL_SECONDS = 0.2
# The variable with the number of a command, from 0.
RANK = "TANDEM_NODE_RANK"
# With a terminal of its own, the command ends when the connection does.
SSH = ("ssh", "-tt", "-oBatchMode=yes", "--")


def main(number: str, hosts: str, *command: str) -> int:
    """Starts the command on the first hosts, in the top folder of the checkout, and returns the exit status."""
    agents = []
    for rank, host in enumerate(hosts.split(",")[: int(number)]):
        remote = f"cd {shlex.quote(str(ROOT))} && exec {shlex.join(['env', f'{RANK}={rank}', *command])}"
        agents.append(subprocess.Popen([*SSH, host, remote], stdin=subprocess.DEVNULL))
    try:
        while None in (statuses := [agent.poll() for agent in agents]) and not any(statuses):
            time.sleep(POLL_SECONDS)
        return next(filter(None, statuses), 0)
    finally:
        for agent in agents:
            agent.terminate()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
