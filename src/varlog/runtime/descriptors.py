"""As many open files as the system lets a server have.

Every replica keeps some of its data files open, and every connection is one more. The usual soft limit is meant for
programs that cannot deal with high numbers; the hard one is what this process may have for the asking (getrlimit(2)).
"""

import resource


def allow_many_files() -> int:
    """For the rest of this process's life, and those that it starts; gives how many it may open."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError):
        return soft  # some systems name a hard limit that they do not grant
    return hard
