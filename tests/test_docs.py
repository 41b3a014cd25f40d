"""The code in the README and in the documentation, run in the order in which a reader meets it."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from pytest_django.plugin import DjangoDbBlocker

from tests.docs.pages import NO_CODE, ROOT, RUN, Page, pages
from tests.docs.project import Project
from tests.fresh_databases import fresh_database

PAGES = pages()
WITH_CODE = [page for page in PAGES if page.runs]

NOT_RUN = {
    ("README.md", "make demo"),
    ("README.md", "python -m pip install path/to/geneva_drive"),
    ("docs/howto/admin.md", 'pip install "path/to/geneva_drive[admin]"'),
    ("docs/howto/deploying.md", "- run: python manage.py geneva_predeploy --strict --json > predeploy.json"),
    ("docs/howto/hero-keys.md", 'GENEVA_DRIVE = {"HERO_KEY_TYPE": "string"}'),
    ("docs/howto/operators-handbook.md", "python manage.py geneva_show 4711"),
    (
        "docs/howto/operators-handbook.md",
        """python manage.py geneva_signal 4711 parcel_scanned '{"tracking": "JD0146"}' --idempotency-key evt_8812""",
    ),
    ("docs/howto/run-workers.md", 'CMD ["python", "manage.py", "geneva_worker", "--threads", "4"]'),
    (
        "docs/howto/run-workers.md",
        "# /etc/systemd/system/geneva-worker@.service, for geneva-worker@1, geneva-worker@2 …",
    ),
    ("docs/howto/run-workers.md", "python manage.py geneva_worker --no-listen --poll-interval 0.5"),
    ("docs/howto/use-celery.md", "python -m pip install 'path/to/geneva_drive[celery]' 'celery[redis]'"),
    ("docs/howto/use-celery.md", "celery -A mysite worker --concurrency 4 -Q mysite,mail"),
    ("docs/howto/run-workers.md", "DATABASES = {"),
    ("docs/howto/use-django-tasks.md", "python -m pip install 'path/to/geneva_drive[tasks]'"),
    ("docs/howto/use-django-tasks.md", 'python manage.py db_worker --queue-name "*" --interval 0.2'),
    ("docs/quickstart.md", "python -m venv .venv"),
    ("docs/quickstart.md", "python manage.py geneva_worker"),
}
"""Pages, and the first lines of blocks that are not run; each page says why, above the block."""


def _ids(page: Page) -> str:
    return page.name


@pytest.fixture(scope="session")
def quickstarted(
    django_db_setup: None, django_db_blocker: DjangoDbBlocker, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Create the project of the quickstart once, with its database."""
    folder = tmp_path_factory.mktemp("quickstarted")
    with django_db_blocker.unblock(), fresh_database("docs", folder) as database:
        Project(folder, database).begin_with_the_quickstart()
        yield folder, database


@pytest.fixture
def project(
    page: Page,
    tmp_path: Path,
    django_db_blocker: DjangoDbBlocker,
    quickstarted: tuple[Path, dict[str, Any]],
) -> Iterator[Project]:
    """Return the project of a page as it is before the first block."""
    folder = tmp_path / "project"
    if page.begins_with == "the quickstart":
        template, template_database = quickstarted
        # On SQLite the database is a file in it.
        shutil.copytree(template, folder)
        with django_db_blocker.unblock(), _copy(template_database, folder) as database:
            begun = Project(folder, database)
            begun.use_the_database()
            if page.takes_the_workflow_for_granted:
                begun.have_the_workflow()
            yield begun
            begun.close_shell()
        return
    folder.mkdir()
    with django_db_blocker.unblock(), fresh_database("page", folder) as database:
        begun = Project(folder, database)
        if page.begins_with == "a project":
            begun.begin_with_a_project()
        else:
            assert page.begins_with == "nothing"
        yield begun
        begun.close_shell()


def _copy(database: dict[str, Any], folder: Path) -> AbstractContextManager[dict[str, Any]]:
    """The quickstarted project's database for one page; on SQLite it was copied with its folder."""
    if database["ENGINE"].endswith("sqlite3"):
        return nullcontext(database)
    return fresh_database("page", folder, template=database)


# About twenty processes, each of which sets up Django; many create tables.
@pytest.mark.timeout(900)
@pytest.mark.only_on("sqlite", "postgresql", reason="a page says the same on every database, and takes long")
@pytest.mark.once(reason="the code of a page is the same, and takes long")
@pytest.mark.parametrize("page", WITH_CODE, ids=_ids)
def test_the_code_of_a_page_runs(page: Page, project: Project) -> None:
    for block in page.runs:
        try:
            project.run(block, page.name)
        except AssertionError as error:
            raise AssertionError(f"{page.name}, line {block.line}:\n{block.text}\n{error}") from None

    project.check()


def test_blocks_that_are_not_run_are_listed_with_a_reason() -> None:
    unknown = [
        f"{page.name}, line {block.line}: {block.language!r}"
        for page in PAGES
        for block in page.blocks
        if block.not_run is None and block.language not in RUN | NO_CODE
    ]
    left_out = {(page.name, block.first_code) for page in PAGES for block in page.blocks if block.not_run}

    assert unknown == []
    assert left_out == NOT_RUN


def test_most_pages_with_code_were_found() -> None:
    names = {page.name for page in WITH_CODE}

    assert {"README.md", "docs/quickstart.md", "docs/howto/change-steps.md"} <= names


@pytest.mark.parametrize("page", PAGES, ids=_ids)
def test_links_point_to_existing_files(page: Page) -> None:
    links = re.findall(r"\]\((?!https?:|#)([^)#\s]+)", page.path.read_text())

    assert [link for link in links if not (page.path.parent / link).exists()] == []


def test_every_page_is_in_the_table_of_contents() -> None:
    index = (ROOT / "docs" / "index.md").read_text()
    entries = set(re.findall(r"^[\w/-]+$", index, re.MULTILINE))

    documents = {
        str(page.path.relative_to(ROOT / "docs").with_suffix(""))
        for page in PAGES
        if page.name != "README.md"
    }
    assert documents - {"index"} == entries
