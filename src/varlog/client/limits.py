"""Every bound of the client, with its reason. Those that other rooms share are in `base.limits`."""

TIMEOUT_SECONDS = 10.0
"""How long a call may take when neither `connect` nor the call itself says."""

GRACE_SECONDS = 0.1
"""What is added to a time limit around another one, so that the inner one, which knows more, speaks first."""

# ---------------------------------------------------------------- repository

REPOSITORIES = 64
"""Most addresses in a cluster's URL."""

ATTEMPT_SECONDS = 2.0
"""A repository that has not answered a question for so long is asked again."""

SHORTEST_ATTEMPT_SECONDS = 0.0005
"""With less time left nothing is tried any more: a clock need not even move in so little."""

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 1.0
"""Between attempts to reach someone who was not there: doubled each time, with jitter."""

FIRST_PAUSE_AT_END_SECONDS = 0.002
"""The same towards members of a stream that has ended: they are told of that while we are, in a moment each."""

# ---------------------------------------------------------------- appends

SHARE_APPENDS = 1024
"""Beyond so many, appends that wait together are shared among the streams that can take them. Fewer are not cut
into several batches: a batch costs every process on its way more than what is in it."""

EAGER_APPENDS = 512
"""So many that wait are sent at once, not at the end of the turn of the event loop: they are on their way while the
application goes on to make more."""

GATHER_BYTES = 1 << 20
"""Appends that wait at the same time travel as one batch up to this size, what entries cost besides included."""

APPENDS_IN_FLIGHT = 4
"""Batches of gathered appends on their way to one stream. Small, so that appends gather while they wait."""

FULL_IN_FLIGHT = 8
"""The same where the next batch is as good as full already, and would gain nothing by waiting."""

APPEND_BYTES = 64 << 20
"""Bytes of all appends of a log that wait or are on their way; who comes later waits to be let in."""

FIRST_ANSWER_SECONDS = 1.0
LONGEST_ANSWER_SECONDS = 5.0
"""An append that was not answered for so long is sent again, as it is; doubled while nothing is answered."""

FIRST_ANSWER_AT_END_SECONDS = 0.1
"""The same once its stream has ended, when it is asked for at another member: any of them may stand still."""

REFUSED_SECONDS = 1.0
"""A stream that refused an append for a reason that may pass gets none for so long, if there are others."""

STORE_SECONDS = 0.5
"""A member of a chain that did not answer a store for so long is asked again; a writer's timeout under `sequencer`."""

MEMBERS_FIRST_SECONDS = 0.05
"""How long members are asked for the tail alone; then the repository is, too, and whoever knows it first is heard."""

QUESTIONS_UNDER_WAY = 2
"""For the tail of a log, or for its record, however many ask: one that left after they asked is good for all."""

SUPERSEDED_SECONDS = 0.1
"""Such a question that was not answered for so long is no longer waited for by those who come after it."""

FILL_SECONDS = 1.0
"""A position that was granted and that the head of its chain lacks for so long is given up. Longer than a writer's
timeout; one that was even slower finds its place taken, and is granted another."""

FILL_STEP_SECONDS = 0.01
"""How often it is looked whether a position that others wait for has come."""

RELEASE_SECONDS = 0.005
"""How long what is written waits for the next store to tell members of it."""

HINTS = 256
"""Recent acks of a log that a read may use to know the stream of a position."""

# ---------------------------------------------------------------- producers

LINGER_SECONDS = 0.002
"""How long a producer waits for more entries before it sends a batch that is not full."""

PRODUCER_BATCH_BYTES = 256 << 10
"""Size at which a producer's batch is full."""

PRODUCER_BYTES = 32 << 20
"""Bytes of a producer's entries that are not yet acknowledged; `send` waits beyond it."""

# ---------------------------------------------------------------- reads

READ_WINDOW_BYTES = 4 << 20
"""What a replica may send ahead on one stream."""

READ_PART_BYTES = 512 << 10
"""Wanted size of a part of an answer."""

READ_AHEAD_BYTES = 8 << 20
"""What a subscription keeps of one stream that cannot be delivered yet; beyond, no more parts are taken."""

SILENT_SECONDS = 3.0
"""A replica that has shown nothing new for so long is left for another, in case it is behind."""

LAGGING_SECONDS = 0.25
"""The same once it is known that there is something new."""

PATIENCE_SECONDS = 60.0
"""A subscription ends in an error when no replica of a stream answers, or has what is known to exist, for so long."""

# ---------------------------------------------------------------- journals

LEASE_SECONDS = 5.0
"""How long a journal's leader leads without a word, if it does not say otherwise."""

RENEWALS = 3
"""How often a leader gives word in the time of its lease."""

CAMPAIGN_SECONDS = 5.0
"""A candidate whose question was not answered for so long asks again."""

RESIGN_SECONDS = 1.0
"""What a leader that leaves spends on seeing its appends through, and as much on saying so."""

JOURNAL_STORE_BYTES = 1 << 20
"""Wanted size of one STORE of a leader; a larger batch goes alone."""

JOURNAL_STORE_SECONDS = 5.0
"""A STORE that was not answered for so long: the member is asked how far it is."""

JOURNAL_STORES_IN_FLIGHT = 8
"""STOREs of a leader ahead of their answers, per member."""

JOURNAL_BEHIND_BYTES = 32 << 20
"""What is committed is kept up to so much for members that lack it; then others take the place of those."""

JOURNAL_RELEASE_SECONDS = 0.005
"""How long what is committed waits for a STORE to ride with before members are told by itself."""

LEFT_BEHIND_SECONDS = 5.0
"""Between two questions for other members, if one cannot be brought up."""
