"""The command with a database on a PostgreSQL server."""

import json
from pathlib import Path

import pytest
from command import export_profiles, only_line
from postgresql_server import make_database

from store import open_store

MODELS = Path(__file__).parents[1] / "user_models"
ASKED = ("--model", "toy_nets:Net", "--module-path", MODELS, "--input", "float32[4,8]")


@pytest.mark.parametrize("scheme", ["postgresql", "postgresql+psycopg"])
def test_profiles_go_to_a_server(scheme, server) -> None:
    """Tables are made, the profile is stored, found again, and replaced on request."""
    url = make_database(server, "commanded").replace("postgresql", scheme, 1)
    for more, stored in [((), 1), ((), 0), (("--force",), 1)]:
        done = export_profiles("--db", url, *ASKED, *more, "--json", "--quiet")
        assert (done.returncode, done.stderr) == (0, "")
        assert len(json.loads(done.stdout)["stored"]) == stored
    with open_store(url, read_only=True) as store:
        (totals,) = store.totals()
        assert (totals.model, totals.fwd_macs) == ("toy_nets:Net", 4 * 8 * 2)
        assert len(store.read(totals.profile_id).ops) == totals.op_count
    shown = export_profiles("db", "current", "--db", url)
    assert "which is the newest" in only_line(shown.stdout)


def test_server_that_does_not_answer_is_told() -> None:
    """Where no server listens, one line says so, without the password."""
    url = "postgresql://someone:secret@127.0.0.1:1/profiles"
    done = export_profiles("--db", url, *ASKED)
    assert (done.returncode, done.stdout) == (2, "")
    assert "127.0.0.1" in only_line(done.stderr)
    assert "secret" not in done.stderr
