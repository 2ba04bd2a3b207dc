"""Stands for kubectl: keeps what is applied, tells one of `states` a question.

The state `silence` is no answer.
"""

import sys

from world import WORLD, log, read, write

log("kubectl")
if "apply" in sys.argv:
    (WORLD / "applied.yaml").write_text(sys.stdin.read())
elif any("terminalState" in argument for argument in sys.argv):
    states = read("states", ["Completed"])
    write("states", states[1:] or states)
    if states[0] == "silence":
        sys.exit("Unable to connect to the server: net/http: TLS handshake timeout")
    print(states[0], end="")
