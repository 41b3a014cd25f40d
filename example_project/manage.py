"""Django's management commands for the shop, such as ``python example_project/manage.py runserver``."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def main() -> None:
    # Import from the parent folder instead of this one, so that `example_project` is a package.
    sys.path[0] = str(Path(__file__).resolve().parent.parent)
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "example_project.settings")

    from django.core.management import execute_from_command_line

    execute_from_command_line(sys.argv)


if __name__ == "__main__":
    main()
