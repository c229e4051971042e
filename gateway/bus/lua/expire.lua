-- The owner's timer for a call fired. ARGV: epoch, op, call_id.
-- Returns the instant that the call waits for now (it was acked meanwhile, say), 0 when it is settled, or -1 when there is
-- no such call (a failover lost it).
if not open_session() then return redis.error_reply('TR not_found') end
local fenced = fence(ARGV[1], ARGV[2])
if fenced and fenced ~= 'repeated' then return fenced end
local call = load_call(ARGV[3])
if call then settle_if_late(call) end
commit()
if not call then return -1 end
return is_open(call) and int(call.due) or 0
