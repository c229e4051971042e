-- The child cancelled a call. ARGV: epoch, call_id, 'timeout' when its own clock ran out, detail.
-- Returns 1 when the call was open.
if not open_session() then return 0 end
if session.epoch ~= ARGV[1] then return redis.error_reply('TR fenced') end
local call = load_call(ARGV[2])
if not call then return 0 end
local open = is_open(call)
if open then fail(call, TABLE[call.state][ARGV[3] == 'timeout' and 'due' or 'end'], ARGV[4] ~= '' and ARGV[4] or nil) end
commit()
return open and 1 or 0
