export const SUBPROTOCOL = "toolrelay.v1";
export const RESULT_CHARS = 65536;
export const STRUCTURED_BYTES = 65536;
export const SOCKET_FRAME_BYTES = 4194304;
