"""Every bound, with its reason. Owns numbers only.

Bounds of the two protocols are facts (stdio: the child refuses or ends beyond them; HTTP and WebSocket: what their
clients were promised); bounds of ours keep one session from growing without end.
"""

from typing import Final

# The child (stdio protocol, "Framing", "Bounds and schemas").
CHILD_INPUT_FRAME_BYTES: Final = 65_536  # without the LF; one more and the child closes
CHILD_OUTPUT_FRAME_BYTES: Final = 65_536  # with the LF
CHILD_JSON_DEPTH: Final = 32
CHILD_REQUEST_IDS: Final = 4_096  # per life; the next one ends the child
CHILD_PROMPT_BYTES: Final = 16_384
CHILD_TOOLS: Final = 32
CHILD_TOOL_NAME_BYTES: Final = 64
CHILD_DESCRIPTION_BYTES: Final = 2_048
CHILD_SCHEMA_BYTES: Final = 8_192
CHILD_SCHEMA_DEPTH: Final = 16
CHILD_REGISTRY_BYTES: Final = 32_768
CHILD_ARGUMENTS_BYTES: Final = 16_384
CHILD_RESULT_BYTES: Final = 32_768
CHILD_PENDING_CALLS: Final = 16
CHILD_TIMEOUT_MIN_MS: Final = 1_000
CHILD_TIMEOUT_MAX_MS: Final = 300_000
CHILD_ASSISTANT_BYTES: Final = 8 * 1024 * 1024  # per run

# Clients (HTTP protocol, "Registrations").
CLIENT_NAME_CHARS: Final = 32
CLIENT_TTL_MIN_S: Final = 5
CLIENT_TTL_MAX_S: Final = 3_600
CLIENTS_PER_SESSION: Final = 32  # live ones
CLIENT_KEY_MIN_CHARS: Final = 2
CLIENT_KEY_MAX_CHARS: Final = 64
TOOLS_PER_CLIENT: Final = 64
TOOL_NAME_CHARS: Final = 64
TOOL_DESCRIPTION_CHARS: Final = 4_096
TOOL_SCHEMA_BYTES: Final = 32 * 1024  # ours: what a page may ask a node to keep and compile
TOOL_LIST_BYTES: Final = 512 * 1024  # ours: one registration's whole list, compact
RESULT_CHARS: Final = 65_536  # code points of a result's text
STRUCTURED_BYTES: Final = 64 * 1024  # ours: structured results, compact
NAMES_PER_SESSION: Final = 10_000  # ours: names that a session remembers as handed out

# Clocks, in milliseconds.
ACK_MS: Final = 60_000  # from the dispatch
RESULT_MS: Final = 300_000  # from the ack
REFUSED_ANSWER_MS: Final = 10_000  # a refused answer may be corrected for so long
DEADLINE_MARGIN_MS: Final = 500  # the child's clock less this: it hears our error, not its own timeout

# Sessions.
DISPLAY_NAME_CHARS: Final = 200
QUEUED_RUNS: Final = 32  # inputs that wait behind the active run
EVENTS_PAGE: Final = 200
SESSION_TTL_S: Final = 30 * 24 * 3600  # after the last activity
LOG_EVENTS: Final = 50_000
SETTLED_CALL_TTL_S: Final = 7 * 24 * 3600
IDEMPOTENCY_TTL_S: Final = 7 * 24 * 3600
TOKENS_PER_SESSION: Final = 256  # live ones

# Requests of peers.
BODY_BYTES: Final = 4 * 1024 * 1024  # what HTTP lets a client send must fit however it is escaped
REQUEST_JSON_DEPTH: Final = 128  # of a client's body; a stored schema or structured result may be this deep
IDEMPOTENCY_KEY_CHARS: Final = 255
STREAMS_PER_SESSION: Final = 2_048  # ours: on one node
SOCKET_FRAME_BYTES: Final = 4 * 1024 * 1024
SOCKET_FRAME_BYTES_BEFORE_ATTACH: Final = 8 * 1024
SOCKET_ATTACH_S: Final = 10
SOCKET_QUEUE_BYTES: Final = 2 * 1024 * 1024
SOCKET_SESSIONS: Final = 256  # attachments of one socket
HEARTBEAT_S: Final = 15  # comments on an idle stream
KEEPALIVE_S: Final = 20  # keepalive pushes and protocol pings on a socket

# Nodes.
NODE_LEASE_MS: Final = 4_000
NODE_RENEW_MS: Final = 1_000
NODES_TTL_S: Final = 30 * 24 * 3600  # their keys, since the last renewal of any node
SWEEP_MS: Final = 500  # a lapse is declared within a second
PARTITIONS: Final = 128
