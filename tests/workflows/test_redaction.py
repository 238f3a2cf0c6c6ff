"""What travels beside a job holds no password, and is else the manifest as it was written."""

from __future__ import annotations

import pytest
import yaml

from ffdl.workflows.redaction import INSTEAD, without_credentials


def connection(password: str) -> str:
    return f"""# žluťoučký 🐎
name: "é"  # a comment
data_stores:
  - connection:
      user_name: u
      password: {password}
      auth_url: x
"""


@pytest.mark.parametrize(
    "password",
    ["hush", "'hush'", '"hu\\x73h hush"', "|\n        hush", ">-\n        hush\n        hush", "&p hush", "!!str hush"],
)
def test_however_it_is_written(password: str) -> None:
    """A learner's code reads the manifest that lies beside it: the store's password is not in it, all else is."""
    text = connection(password)
    shown = without_credentials(text.encode()).decode()
    assert "hush" not in shown
    assert shown.startswith(text[: text.index("password")])
    expected = yaml.safe_load(text)
    expected["data_stores"][0]["connection"]["password"] = INSTEAD.strip('"')
    assert yaml.safe_load(shown) == expected


def test_by_another_name() -> None:
    """Also where the value stands elsewhere in the file."""
    text = "description: &p hush\na: {password: *p}\nb: &b {access_token: hush}\nc: {<<: *b}\nd: [{password: 'hush'}]\n"
    shown = without_credentials(text.encode()).decode()
    assert "hush" not in shown
    assert yaml.safe_load(shown)["a"] == {"password": INSTEAD.strip('"')}


@pytest.mark.parametrize("text", [connection("${STORE_PASSWORD}"), connection(""), "name: password\n"])
def test_what_gives_nothing_away_stays(text: str) -> None:
    """A reference tells a reader of the record where the password came from."""
    assert without_credentials(text.encode()).decode() == text
