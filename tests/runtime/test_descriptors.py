"""A server may open as many files as the system grants."""

import resource

from varlog.runtime.descriptors import allow_many_files


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    soft, hard = before = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
        assert allow_many_files() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        assert allow_many_files() == hard
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
