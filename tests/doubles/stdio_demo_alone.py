"""What the real child (magi-code 0.104.0) cannot be brought to offline, and why: the short list of what
``tests/conformance/stdio`` shows on the demo agent alone."""

CODES = {
    "startup_failed": "a fault inside its start",
    "profile_invalid": "no profile is asked for by these settings",
    "mcp_unavailable": "MCP is off, and a server that fails does not fail the start",
    "content_limit": "8 MiB of text: its compaction begins at one",
    "operation_cancelled": "an operation that takes long enough to be cancelled",
    "discovery_limit": "more sessions than its bound of 256 directories' worth",
    "discovery_unavailable": "a folder that cannot be read; tests run as a user who may read all",
    "discovery_record_bytes": "a record of 8 MiB",
    "discovery_page_bytes": "one session's entry beyond 32 KiB",
    "catalog_limit": "a provider's catalog, which cannot be filled offline",
    "catalog_unavailable": "a provider's catalog, which cannot be filled offline",
    "effort_unsupported": "a model of its catalog, which cannot be filled offline",
    "persistence_failed": "a disk that is full or not writable; tests run as a user who may write all",
    "output_unavailable": "a reader that does not read; ours always does",
}
"""Error codes."""

WORDS = {
    "approval.requested": "its bash protection asks, which needs a second model that judges (tests/peers has one)",
    "run_finished": "it waits for all its calls before it finishes a run",
    "degraded": "a disk that fails after the input was written",
    "not_started": "a disk that fails before",
}
"""Events, reasons of a cancel, outcomes and persistence."""

TESTS = {
    "test_a_code_that_only_the_demo_agent_can_be_brought_to": "the codes above",
    "test_an_approval": "approval.requested, above",
    "test_a_run_that_finishes_with_a_call_open_cancels_it": "run_finished, above",
    "test_what_is_not_durable_is_said": "degraded and not_started, above",
    "test_sixteen_calls_are_open_at_once_and_the_seventeenth_is_busy": "its own bounds (two levels of four) end at 16",
    "test_arguments_that_a_hook_made_are_measured_again": "its hooks watch and refuse, they rewrite nothing",
    "test_arguments_beyond_the_bound_reach_no_hook": "its hooks cannot make arguments smaller, either",
}
"""Every test of the suite that asks for the demo agent alone."""
