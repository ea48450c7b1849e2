"""A PostgreSQL server of our own on the loopback, gone afterwards."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from handmade_profiles import many_storages

from store import upgrade_store
from store.records import Rows, Storage
from tools.revision_database import small_profile


def binaries() -> Path | None:
    """Return the folder of the newest PostgreSQL server here, if there is one."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    on_path = shutil.which("initdb")
    if found:
        return found[-1].parent
    return Path(on_path).resolve().parent if on_path else None


def as_server_user() -> list[str]:
    """Return the words before a command that make it run as no root, which the server refuses."""
    if os.geteuid() != 0:
        return []
    try:
        pwd.getpwnam("postgres")
    except KeyError:
        pytest.skip("there is no user postgres to run a server as, and root may not")
    return ["runuser", "-u", "postgres", "--"]


@pytest.fixture(scope="module")
def server():
    """Start a server of our own and yield its port."""
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    folder = binaries()
    if folder is None:
        pytest.skip("no PostgreSQL server is installed")
    user = as_server_user()
    home = Path(tempfile.mkdtemp())
    if user:
        shutil.chown(home, "postgres")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    data = home / "data"

    def run(program, *words):
        subprocess.run(
            [*user, str(folder / program), "-D", str(data), *words],
            cwd=home, check=True, stdout=subprocess.DEVNULL,
        )  # fmt: skip

    run("initdb", "-A", "trust", "-U", "postgres", "--no-sync")
    settings = f"-c listen_addresses=127.0.0.1 -p {port} -k {home} -c fsync=off"
    run("pg_ctl", "-w", "-l", str(home / "log"), "-o", settings, "start")
    yield port
    run("pg_ctl", "-m", "immediate", "stop")
    shutil.rmtree(home)


def make_database(port, name, template="template1"):
    """Make a database anew and return its address."""
    import psycopg  # noqa: PLC0415  # optional

    root = f"host=127.0.0.1 port={port} user=postgres dbname=postgres"
    with psycopg.connect(root, autocommit=True) as connection:
        connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
        connection.execute(f"CREATE DATABASE {name} TEMPLATE {template}")
    return f"postgresql://postgres@127.0.0.1:{port}/{name}"


@pytest.fixture(scope="module")
def template(server):
    """Migrate a database once; copying it is much faster."""
    upgrade_store(make_database(server, "migrated"))
    return "migrated"


class Interrupted(list):
    """Rows in the middle of which something happens while they are written."""

    happens = staticmethod(lambda: None)

    def __iter__(self):
        yield from self[: len(self) // 2]
        self.happens()
        yield from self[len(self) // 2 :]


def interrupted_profile(happens):
    """Return another version of the small profile, to be interrupted among 50,000 storages."""
    rows = Interrupted(many_storages())
    rows.happens = happens
    return replace(small_profile(structural_hash="new"), storages=Rows(Storage, rows))
