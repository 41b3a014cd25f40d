"""An open shell: a process that runs what it is given, block after block, in one namespace.

It reads one JSON object a line, ``{"language", "text", "line", "page"}``, and answers each with one:
``{"problem"}``, which is empty when all went well.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import json
import os
import sys
import traceback
from typing import Any


def run(given: dict[str, Any], namespace: dict[str, Any]) -> str:
    """Run one block and return what went wrong."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
        try:
            if given["language"] == "python":
                # So that a traceback has the line of the page.
                code = "\n" * (given["line"] - 1) + given["text"]
                exec(compile(code, given["page"], "exec"), namespace)
                return ""
            test = doctest.DocTestParser().get_doctest(
                given["text"], {}, given["page"], given["page"], given["line"] - 1
            )
            test.globs = namespace
            failed, tried = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(test, clear_globs=False)
        except BaseException:  # noqa: BLE001 - whatever it was, the test has to hear of it
            return output.getvalue() + traceback.format_exc()
    if not tried:
        return "there is nothing to run in it"
    return output.getvalue() if failed else ""


def main() -> None:
    import django

    sys.path[0] = os.getcwd()
    django.setup()
    answers, sys.stdout = sys.stdout, sys.stderr
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for line in sys.stdin:
        answers.write(json.dumps({"problem": run(json.loads(line), namespace)}) + "\n")
        answers.flush()


if __name__ == "__main__":
    main()
