"""Names of logs and producers."""

import pytest

from varlog.base.errors import InvalidArgument, TooLarge
from varlog.base.limits import NAME_CHARACTERS
from varlog.base.names import check_name


@pytest.mark.parametrize("name", ["orders", "7", "a.b_c-D", "x" * NAME_CHARACTERS])
def test_good_names_pass_unchanged(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name", ["", " ", "a b", "a/b", "../etc", ".hidden", "-flag", "_x", "naïve", "a\n", "a\0", "٣", None, b"orders", 7]
)
def test_odd_names_are_refused(name: object) -> None:
    with pytest.raises(InvalidArgument):
        check_name(name)


def test_a_long_name_says_the_limit() -> None:
    with pytest.raises(TooLarge) as refused:
        check_name("x" * (NAME_CHARACTERS + 1), "producer")
    assert refused.value.limit == NAME_CHARACTERS
    assert "producer" in refused.value.message
