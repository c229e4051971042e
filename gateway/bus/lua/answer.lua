-- A client answers a call. ARGV: client_id, call_id, digest, answer for the child (opaque), tool_result payload.
-- Returns 'answered', or 'repeated' for the same answer again.
if not open_session() then return redis.error_reply('TR not_found') end
local call = load_call(ARGV[2])
if not call or call.client ~= ARGV[1] then return redis.error_reply('TR not_found') end
settle_if_late(call)
if call.reason == 'client_gone' then  -- a registration that is gone has no calls any more (bridge 7)
  commit()
  return redis.error_reply('TR not_found')
end
local to, verdict = step(call.state, 'answer')
if verdict ~= 'applied' then
  commit()
  if call.state == 'answered' and call.digest == ARGV[3] then return 'repeated' end
  return redis.error_reply('TR settled ' .. call.state .. ' ' .. (call.reason or '-') .. ' ' .. (call.settled or '0'))
end
settle(call, 'state', to, 'digest', ARGV[3], 'outcome', 'done', 'answer', ARGV[4], 'delivery', 'pending')
append(ARGV[5])
commit()
tell_owner('R', call.id, ARGV[4])
return 'answered'
