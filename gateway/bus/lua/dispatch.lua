-- The owner dispatches a call. ARGV: epoch, op, budget in ms, call_id, client_id, registration's revision as the owner
-- knows it, tool, model name, run_id, idempotent (1|0), arguments for the log, arguments for the client ('' = the
-- same), delivery marks, then payloads that are logged before (closed messages, the tool_call block, tool_call).
-- Returns {'dispatched', due ms, deadline ms}, {'gone'}, {'stale'} (the list has changed: read it again) or {'refused'}
-- (there is such a call already).
if not open_session() then return redis.error_reply('TR not_found') end
local fenced = fence(ARGV[1], ARGV[2])
local id = ARGV[4]
if fenced == 'repeated' then
  local v = redis.call('HMGET', call_key(id), 'due', 'deadline')
  if v[1] then return { 'dispatched', v[1], v[2] } end
  return { 'gone' }
end
if fenced then return fenced end
local revision = redis.call('HGET', client_key(ARGV[5]), 'revision')
local refused = nil
if not revision then refused = 'gone'
elseif revision ~= ARGV[6] then refused = 'stale'
elseif redis.call('EXISTS', call_key(id)) == 1 then refused = 'refused' end
if refused then
  commit()
  return { refused }
end
mark_delivered(ARGV[13])
for i = 14, #ARGV do append(ARGV[i]) end
local call = { id = id, client = ARGV[5], attempt = 1, deadline = now + tonumber(ARGV[3]) }
local due = wait_until(call, now + C.ack)
local hidden = ARGV[12] ~= ''
local live = hidden and ARGV[12] or ARGV[11]
append(dispatched(call, ARGV[7], ARGV[11], hidden), hidden and dispatched(call, ARGV[7], live) or nil)
redis.call('HSET', call_key(id), 'state', 'dispatched', 'client', call.client, 'tool', ARGV[7], 'model', ARGV[8],
  'run', ARGV[9], 'attempt', '1', 'due', due, 'deadline', int(call.deadline), 'dispatched', int(now), 'idempotent',
  ARGV[10], 'args', live, 'seq', int(session.seq))
if hidden then redis.call('HSET', call_key(id), 'log_args', ARGV[11], 'hidden', '1') end
redis.call('PEXPIRE', call_key(id), int(C.open_ttl + tonumber(ARGV[3]))) -- so long after its end at least
redis.call('HSET', base .. ':open', id, call.client)
keep(base .. ':open')
redis.call('ZADD', base .. ':calls', int(now), id)
if now - session.listed > C.touch_every then -- the first of a session, and once in a while
  redis.call('ZREMRANGEBYSCORE', base .. ':calls', '-inf', int(now - C.settled_ttl))
  keep(base .. ':calls')
  commit('listed', int(now))
else
  commit()
end
return { 'dispatched', due, int(call.deadline) }
