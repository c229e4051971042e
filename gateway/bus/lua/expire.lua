-- The owner's timer for a call fired. ARGV: epoch, call_id.
-- Returns the instant that the call waits for now (it was acked meanwhile, say), or 0 when it is settled.
if not open_session() then return 0 end
if session.epoch ~= ARGV[1] then return redis.error_reply('TR fenced') end
local call = load_call(ARGV[2])
if not call then return 0 end
settle_if_late(call)
commit()
return is_open(call) and int(call.due) or 0
