-- A client's answer was not valid; it may correct it for a while. ARGV: client_id, call_id, what the model is told if it
-- does not (a JSON string).
-- Returns the instant by which a valid answer must come, or 0 when the call is not open any more.
if not open_session() then return redis.error_reply('TR not_found') end
local call = load_call(ARGV[2])
if not call or call.client ~= ARGV[1] then return redis.error_reply('TR not_found') end
settle_if_late(call)
local due = 0
if is_open(call) then
  due = wait_until(call, math.min(call.due, now + C.refused))
  redis.call('HSET', call_key(call.id), 'refused', '1', 'refused_text', ARGV[3], 'due', due)
  tell_owner('D', call.id, due)
end
commit()
return due
