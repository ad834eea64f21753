"""Passwords in a database's address are never shown, in whichever part of the address they are."""

from __future__ import annotations

import traceback

import pytest
from cli_tools import cli

from autotensor.api.log import log_name
from tuning_db import StoreError, connect
from tuning_db.address import shown, without_passwords

SECRET = "hunter22"
ADDRESSES = [
    f"postgresql://ada:{SECRET}@127.0.0.1:1/log",
    f"postgresql://ada@127.0.0.1:1/log?password={SECRET}",
    f"postgresql://127.0.0.1:1/log?user=ada&sslmode=disable&PASSWORD={SECRET}&sslpassword={SECRET}",
    f"postgresql://127.0.0.1:1/log?pass%77ord={SECRET}",
    f"postgresql+psycopg://ada:{SECRET}?{SECRET}@127.0.0.1:1/log",
    f"nonesuch://ada:{SECRET}@127.0.0.1:1/log?pwd={SECRET}",
    f"post gres://ada:{SECRET}@127.0.0.1:1/log",
    f"postgresql://ada:{SECRET}@127.0.0.1:port/log",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_password_is_not_shown(address: str) -> None:
    assert SECRET not in shown(address)
    assert "***" in shown(address)
    assert SECRET not in log_name(address)
    assert SECRET not in without_passwords(f"cannot reach {address}", address)


def test_a_password_is_taken_out_of_a_drivers_words() -> None:
    assert without_passwords(f"no entry with {SECRET}", ADDRESSES[1]) == "no entry with ***"


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_error_holds_one(address: str) -> None:
    with pytest.raises(StoreError) as caught:
        connect(address)
    assert SECRET not in str(caught.value)
    assert SECRET not in "".join(traceback.format_exception_only(caught.value))
    said = cli("db", "list", "--db", address)
    assert said.code == 1
    assert SECRET not in said.out + said.err
    assert "***" in said.err


def test_what_is_no_password_is_shown() -> None:
    plain = "postgresql://ada@host:5432/log?sslmode=require&passfile=/home/ada/.pgpass"
    assert shown(plain) == plain
    assert shown("sqlite:////home/ada/p@ss:w.db") == "sqlite:////home/ada/p@ss:w.db"
    assert shown("/home/ada/tuning.db") == "/home/ada/tuning.db"
