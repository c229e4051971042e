-- A client says that it works on a call. ARGV: client_id, call_id.
-- Returns the client_tool_acked event; the same one for a repeat.
if not open_session() then return redis.error_reply('TR not_found') end
local call = load_call(ARGV[2])
if not call or call.client ~= ARGV[1] then return redis.error_reply('TR not_found') end
settle_if_late(call)
if call.reason == 'client_gone' then  -- a registration that is gone has no calls any more (bridge 7)
  commit()
  return redis.error_reply('TR not_found')
end
local to, verdict = step(call.state, 'ack')
if verdict == 'applied' then
  local instant = now + C.result
  if call.refused then instant = math.min(instant, call.due) end
  local due = wait_until(call, instant)
  local event = append('{"type":"client_tool_acked","client_id":"' .. call.client .. '","call_id":"' .. call.id .. '"}')
  redis.call('HSET', call_key(call.id), 'state', to, 'acked', int(session.seq), 'due', due)
  commit()
  return event
end
commit()
if call.acked and call.state ~= 'failed' then
  return '{"seq":' .. call.acked .. ',"type":"client_tool_acked","client_id":"' .. call.client ..
    '","call_id":"' .. call.id .. '"}'
end
return redis.error_reply('TR settled ' .. call.state .. ' ' .. (call.reason or '-') .. ' ' .. (call.settled or '0'))
