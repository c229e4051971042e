"""What one call may cost. Each number has its reason; a commit that raises one says why.

Counts are exact. Sizes and instructions have some room over what was measured when they were set, so that they catch a
habit that came in (another script, another encoding, another pass over the text) and not a field that became longer.
"""

SCRIPTS_ANSWERED_AT_ONCE = ("dispatch", "answer")
"""Each once: one transition with its record, its log entries and its pushes. No other command on that path."""

SCRIPTS_ACKED = ("dispatch", "ack", "answer")

BYTES_TO_REDIS = 1_700
"""Of arguments, per call with a 200-byte answer; measured 1,363. The arguments go four times (block, event, dispatch,
and the child's own copy stays here), the answer twice (the log's form and the child's)."""

BYTES_OF_AN_ACK = 250
"""Names alone."""

ENCODINGS_PER_EVENT = 1
"""An event is encoded by whoever makes it; a script puts its number in front, readers get those bytes spliced."""

INSTRUCTIONS = 1_400_000
"""Measured 1,133,000. Per call in process, owner and edge together, over transports that are none: frames in and out,
checks, redaction, the bus' commands packed and their answers read, two readers of the session."""

HELP_STARTS = 8.0
"""Measured 5.5. ``toolrelay --help`` in times of ``python -c pass``: the command line imports argparse and its own
modules, and nothing of what serves."""
