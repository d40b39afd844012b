"""A worker process of the engine `Processes`: it reads errands, a line of JSON each, and answers with outcomes."""

import json
import os
import sys

from tenuto.engines.work import Errand, run_errand


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what environments print is no answer
    parent = os.getppid()
    for line in sys.stdin:
        outcome = run_errand(Errand(**json.loads(line)), lambda: os.getppid() != parent)
        print(json.dumps(outcome[:3]), file=answers, flush=True)


if __name__ == "__main__":
    main()
